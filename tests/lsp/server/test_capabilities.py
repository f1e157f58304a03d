"""What a client does not take is not sent to it, and what it takes is."""

from pathlib import Path

import pytest

from tests.language_servers import ROOT, STAND_IN
from tests.lsp.sample_session import insert, lenses, line_of, place_of, traced
from tests.lsp.strict_client import FULL_CAPABILITIES, Json, Process, StrictClient
from tests.report.sample import MODEL


def test_a_client_without_capabilities_is_sent_what_every_client_takes() -> None:
    with Process(*STAND_IN) as process:
        client = process.client
        client.initialize(ROOT, capabilities={})
        uri = traced(client)
        asked = [message["method"] for message in client.received if "method" in message]
        assert asked == ["textDocument/publishDiagnostics"]
        found = client.diagnostics(uri)
        assert found.keys() == {"uri", "diagnostics"}
        for one in found["diagnostics"]:
            assert one.keys() == {"range", "message", "severity", "code", "source"}
        line, character = place_of("cache.mul_(0.9)")
        hover = client.at("hover", uri, line, character)["contents"]
        assert hover["kind"] == "plaintext"
        head = "cache.mul_(0.9) · f32[32, 16] · aten.mul\n\n- mul = aten.mul.Tensor f32[32, 16]\n"
        assert hover["value"].startswith(head)
        assert "**" not in client.at("hover", uri, line_of("class Block"), 7)["contents"]["value"]
        assert {hint["tooltip"]["kind"] for hint in client.in_all("inlayHint", uri)} == {"plaintext"}
        at = {"start": {"line": line, "character": character}, "end": {"line": line, "character": character}}
        params = {"textDocument": {"uri": uri}, "range": at, "context": {"diagnostics": []}}
        assert client.request("textDocument/codeAction", params) == [
            {"title": "Explain AL101", "command": "aotlens.explain", "arguments": ["AL101"]}
        ]
        assert client.command("aotlens.show", uri, "Block", "forward")["shown"] is False


@pytest.mark.rotates
def test_a_tag_is_sent_to_a_client_that_knows_it() -> None:
    for tags, sent in (([1, 2], [1]), ([2], None), ([], None)):
        pushed = {"publishDiagnostics": {"tagSupport": {"valueSet": tags}}}
        with Process(*STAND_IN) as process:
            process.client.initialize(ROOT, capabilities={"textDocument": pushed})
            uri = traced(process.client, "dead")
            found = process.client.diagnostics(uri)["diagnostics"]
            assert [one.get("tags") for one in found if one["code"] == "AL304"] == [sent]


def test_edits_have_no_version_for_a_client_that_takes_plain_changes() -> None:
    action = {"codeAction": FULL_CAPABILITIES["textDocument"]["codeAction"]}
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT, capabilities={"textDocument": action})
        uri = traced(process.client)
        line, character = place_of("cache.mul_(0.9)")
        at = {"start": {"line": line, "character": character}, "end": {"line": line, "character": character}}
        params = {"textDocument": {"uri": uri}, "range": at, "context": {"diagnostics": []}}
        first = process.client.request("textDocument/codeAction", params)[0]
        assert first["edit"].keys() == {"changes"}
        assert [one["newText"] for one in first["edit"]["changes"][uri]] == ["cache = cache * 0.9"]


def test_progress_goes_to_the_token_of_the_command(shared: StrictClient) -> None:
    uri = shared.open(MODEL)
    params = {"command": "aotlens.trace", "arguments": [uri, "slow"], "workDoneToken": "mine"}
    slow = shared.send("workspace/executeCommand", params)
    assert shared.notification("$/progress", token="mine")["value"]["kind"] == "begin"
    shared.notify("window/workDoneProgress/cancel", {"token": "mine"})
    assert shared.answer(slow)["failure"] == "cancelled"
    assert "window/workDoneProgress/create" not in [one.get("method") for one in shared.received]


def watched(client: StrictClient) -> Json:
    """What the server wants to hear of."""
    sent = client.wait(lambda one: one.get("method") == "client/registerCapability", "a registration")
    return sent["params"]["registrations"]


def test_findings_of_a_closed_file_follow_it_on_disk(tmp_path: Path) -> None:
    watching = {"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": True}}}
    other = tmp_path / "other.py"
    other.write_text("import torch\n", encoding="utf-8")
    with Process(*STAND_IN) as process:
        client = process.client
        client.initialize(tmp_path, capabilities=watching)
        assert [one["method"] for one in watched(client)] == ["workspace/didChangeWatchedFiles"]
        uri = client.open(other)
        client.command("aotlens.trace", uri, "two")

        def lines_after(method: str, params: Json) -> list[int]:
            mark = len(client.received)
            client.notify(method, params)
            found = client.notification("textDocument/publishDiagnostics", mark, uri=uri)["diagnostics"]
            return [one["range"]["start"]["line"] for one in found]

        item = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [insert(0, 0, "# unsaved\n")]}
        assert lines_after("textDocument/didChange", item) == [1]
        assert lines_after("textDocument/didClose", {"textDocument": {"uri": uri}}) == [0]
        changed = {"changes": [{"uri": uri, "type": 2}]}
        other.write_text("\n\nimport torch\n", encoding="utf-8")
        assert lines_after("workspace/didChangeWatchedFiles", changed) == [2]
        other.write_text("import os\n", encoding="utf-8")
        assert lines_after("workspace/didChangeWatchedFiles", changed) == []


def test_a_trace_that_tells_of_two_files(shared: StrictClient, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("import torch\n", encoding="utf-8")
    opened, uri = shared.open(other), shared.open(MODEL)
    shared.command("aotlens.trace", opened, "two")
    related = shared.findings(opened)[0]["relatedInformation"]
    line, character = place_of("cache.mul_(0.9)")
    there = {"start": {"line": line, "character": character - 1}, "end": {"line": line, "character": 23}}
    assert related == [{"location": {"uri": uri, "range": there}, "message": "and there"}]
    start = {"line": 0, "character": 0}
    params = {"textDocument": {"uri": opened}, "range": {"start": start, "end": start}}
    found = shared.request("textDocument/codeAction", {**params, "context": {"diagnostics": []}})
    changes = next(one["edit"]["documentChanges"] for one in found if one["title"] == "Change both")
    assert [one["textDocument"]["uri"] for one in changes] == [opened, uri]
    before = lenses(shared, uri)[0][1]
    assert before.startswith("training · ")
    shared.change(opened, 2, insert(0, 0, "# new\n"))
    assert lenses(shared, uri)[0][1] == f"before edits: {before}"
    assert shared.at("hover", uri, line, character)["contents"]["value"].endswith("last edits.*")


def test_diagnostics_are_sent_again_only_as_news(shared: StrictClient, tmp_path: Path) -> None:
    uri = traced(shared)
    other = tmp_path / "other.py"
    other.write_text("# aotlens: example f32[2]\ndef f(x):\n    return x\n", encoding="utf-8")
    shared.command("aotlens.trace", shared.open(other), "user")
    told = [one["uri"] for one in shared.all("textDocument/publishDiagnostics")]
    assert told.count(uri) == 1
    shared.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    mark = len(shared.received)
    shared.open(MODEL)
    assert len(shared.findings(uri, mark)) == 2
