"""Every feature's whole answer, from the sample report."""

from pathlib import Path

import pytest

from aotlens.model import loads
from tests.conftest import Golden
from tests.language_servers import ROOT, STAND_IN
from tests.lsp.sample_session import LINES, hint_list, insert, lenses, line_of, place_of, shown, traced
from tests.lsp.strict_client import FULL_CAPABILITIES, Process, StrictClient
from tests.report.sample import MODEL


def test_capabilities(golden: Golden) -> None:
    with Process(*STAND_IN) as process:
        result = process.client.initialize(ROOT)
    assert result["serverInfo"]["name"] == "aotlens"
    golden("lsp/capabilities.json", shown(result["capabilities"]))


def test_before_a_trace_there_is_only_a_lens(shared: StrictClient) -> None:
    uri = shared.open(MODEL)
    assert lenses(shared, uri) == [(line_of("def score"), "Trace", "aotlens.trace", [uri, "score"])]
    assert shared.in_all("inlayHint", uri) == []
    assert shared.at("hover", uri, *place_of("self.up(x)")) is None
    assert shared.all("textDocument/publishDiagnostics") == []


def test_diagnostics_and_refreshes_follow_a_trace(shared: StrictClient, golden: Golden) -> None:
    uri = traced(shared)
    golden("lsp/diagnostics.json", shown(shared.diagnostics(uri)))
    asked = [message.get("method") for message in shared.received if "id" in message]
    assert "workspace/inlayHint/refresh" in asked
    assert "workspace/codeLens/refresh" in asked


def test_a_client_without_refresh_and_progress_is_sent_neither() -> None:
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT, capabilities={})
        traced(process.client)
        asked = [message["method"] for message in process.client.received if "method" in message]
    assert asked == ["textDocument/publishDiagnostics"]


def test_lenses_after_a_trace(shared: StrictClient) -> None:
    uri = traced(shared)
    block, score = line_of("class Block"), line_of("def score")
    assert lenses(shared, uri) == [
        (
            block,
            "training · 9 fw / 12 bw nodes · saves 8.0 KiB · 3 wrapper steps",
            "aotlens.show",
            [uri, "Block", "forward"],
        ),
        (block, "backward", "aotlens.show", [uri, "Block", "backward"]),
        (block, "wrapper", "aotlens.show", [uri, "Block", "wrapper"]),
        (block, "verify", "aotlens.verify", [uri, None]),
        (block, "retrace", "aotlens.trace", [uri, None]),
        (score, "inference · 2 nodes · no wrapper steps", "aotlens.show", [uri, "score", "inference"]),
        (score, "wrapper", "aotlens.show", [uri, "score", "wrapper"]),
        (score, "verify", "aotlens.verify", [uri, None]),
        (score, "retrace", "aotlens.trace", [uri, None]),
    ]


def test_two_targets_traced_by_name_stand_side_by_side(shared: StrictClient) -> None:
    uri = traced(shared, "score")
    assert [title for _, title, _, _ in lenses(shared, uri)][-1] == "retrace"
    shared.command("aotlens.trace", uri, "Block")
    assert {line for line, *_ in lenses(shared, uri)} == {line_of("class Block"), line_of("def score")}


def test_hints(shared: StrictClient, golden: Golden) -> None:
    uri = traced(shared)
    golden("lsp/hints.json", shown(shared.in_all("inlayHint", uri)))


def test_hints_of_a_range_only(shared: StrictClient) -> None:
    uri = traced(shared)
    line = line_of("logits = x @ head")
    part = {"start": {"line": line, "character": 0}, "end": {"line": line + 1, "character": 0}}
    found = shared.request("textDocument/inlayHint", {"textDocument": {"uri": uri}, "range": part})
    assert [hint["label"] for hint in found] == [": f32[32, 10]"]


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("shapes", ["mutated", "saved 8.0 KiB"]),
        ("saved", ["mutated", ": f32[32, 64]", ": f32[32, 64]", ": f32[32, 10]"]),
        ("mutations", [": f32[32, 64]", "saved 8.0 KiB", ": f32[32, 64]", ": f32[32, 10]"]),
    ],
)
def test_each_kind_of_hint_can_be_switched_off(shared: StrictClient, kind: str, left: list[str]) -> None:
    uri = traced(shared)
    settings = {"aotlens": {"inlayHints": {kind: False}}}
    shared.notify("workspace/didChangeConfiguration", {"settings": settings})
    assert [label for _, _, label in hint_list(shared, uri)] == left


HOVERS = (
    ("Block", "class Block"),
    ("cache", "def forward"),
    ("x:", "def forward"),
    ("self.steps += 1", None),
    ("cache.mul_(0.9)", None),
    ("hidden", "hidden = functional"),
    ("self.up(x)", None),
    ("hidden.sigmoid()", None),
    ("* hidden", None),
    ("hidden.view(-1)", None),
    ("score", "def score"),
    ("x @ head", None),
)


def test_hovers(shared: StrictClient, golden: Golden) -> None:
    uri = traced(shared)
    texts = []
    for text, inside in HOVERS:
        line, character = place_of(text, inside)
        answer = shared.at("hover", uri, line, character)
        assert answer["contents"]["kind"] == "markdown"
        texts.append(f"# {line + 1}: {text}\n{shown(answer['range'])}\n{answer['contents']['value']}")
        assert len(answer["contents"]["value"].splitlines()) < 30
    golden("lsp/hovers.md", "\n\n".join(texts))


def test_no_hover_where_nothing_was_computed(shared: StrictClient) -> None:
    uri = traced(shared)
    assert shared.at("hover", uri, line_of("import torch"), 3) is None
    assert shared.at("hover", uri, 100_000, 0) is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_columns_behind_an_emoji(encoding: str) -> None:
    with Process(*STAND_IN) as process:
        general = {"positionEncodings": [encoding]}
        answer = process.client.initialize(ROOT, capabilities={**FULL_CAPABILITIES, "general": general})
        assert answer["capabilities"]["positionEncoding"] == encoding
        uri = traced(process.client)
        line = line_of("hidden.view(-1)")
        before = LINES[line][: LINES[line].index("hidden.view(-1)")]
        units = {"utf-8": len(before.encode()), "utf-16": len(before) + 1, "utf-32": len(before)}[encoding]
        found = process.client.at("hover", uri, line, units)
        assert found["range"] == {
            "start": {"line": line, "character": units},
            "end": {"line": line, "character": units + len("hidden.view(-1)")},
        }


def test_a_bad_example_is_named_while_it_is_typed(shared: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "typed.py"
    script.write_text("# 漢🙂\n# aotlens: example f32[8], q[2]\ndef f(x, y):\n    return x\n")
    uri = shared.open(script)
    found = shared.diagnostics(uri)["diagnostics"]
    assert [(one["code"], one["severity"], one["range"]["start"]) for one in found] == [
        ("AL906", 1, {"line": 1, "character": 27})
    ]
    part = {"start": {"line": 1, "character": 27}, "end": {"line": 1, "character": 28}}
    shared.change(uri, 2, {"range": part, "text": "f32"})
    assert shared.notification("textDocument/publishDiagnostics", version=2)["diagnostics"] == []


def test_places_move_with_the_text_and_changed_lines_show_nothing(shared: StrictClient) -> None:
    uri = traced(shared)
    before = hint_list(shared, uri)
    shared.change(uri, 2, insert(0, 0, "# new\n"))
    assert hint_list(shared, uri) == [(line + 1, character, label) for line, character, label in before]
    gelu = line_of("hidden = functional") + 1
    shared.change(uri, 3, insert(gelu, 0, " "))
    assert hint_list(shared, uri) == [
        (line + 1, character, label) for line, character, label in before if line + 1 != gelu
    ]
    found = shared.notification("textDocument/publishDiagnostics", uri=uri, version=3)
    assert [(one["code"], one["range"]["start"]["line"]) for one in found["diagnostics"]] == [
        ("AL101", line_of("cache.mul_(0.9)") + 1)
    ]
    assert lenses(shared, uri)[0][1].startswith("before edits: training")
    hover = shared.at("hover", uri, line_of("cache.mul_(0.9)") + 1, 12)
    assert hover["contents"]["value"].endswith("*From the trace before the last edits.*")


def test_undo_brings_everything_back(shared: StrictClient) -> None:
    uri = traced(shared)
    before = shared.in_all("inlayHint", uri), lenses(shared, uri)
    shared.change(uri, 2, insert(21, 4, "# "))
    assert shared.in_all("inlayHint", uri) != before[0]
    whole = {"text": MODEL.read_text(encoding="utf-8")}
    shared.change(uri, 3, whole)
    assert (shared.in_all("inlayHint", uri), lenses(shared, uri)) == before


def test_verifying_tells_each_target_and_marks_what_differs(shared: StrictClient) -> None:
    uri = traced(shared)
    assert "verify" in [title for _, title, _, _ in lenses(shared, uri)]
    assert shared.command("aotlens.verify", uri)["verified"] == {"Block": "equal", "score": "differs"}
    said = shared.all("window/showMessage")
    assert [(one["type"], one["message"]) for one in said] == [
        (1, "score: differs: out differs by 0.5"),
        (3, "Block: equal: 3 values"),
    ]
    titles = [title for _, title, _, _ in lenses(shared, uri)]
    assert any(title.endswith("· equal to eager") for title in titles)
    assert any(title.endswith("· differs from eager") for title in titles)
    assert "verify" not in titles
    found = shared.all("textDocument/publishDiagnostics")[-1]["diagnostics"]
    assert [one["message"] for one in found if one["code"] == "AL701"] == ["out differs by 0.5"]


def test_an_export_is_a_file_and_never_written_over_another(shared: StrictClient, tmp_path: Path) -> None:
    uri = traced(shared)
    destination = tmp_path / "block.py"
    answer = shared.command("aotlens.export", uri, "Block", destination.as_uri())
    assert answer["uri"] == destination.as_uri()
    assert "class Block(torch.autograd.Function):" in destination.read_text()
    destination.write_text('"""Generated by aotlens; needs torch only."""\n')
    assert shared.command("aotlens.export", uri, "Block", destination.as_uri())["uri"] is not None
    destination.write_text("mine = 1\n")
    refused = shared.command("aotlens.export", uri, "Block", destination.as_uri())
    assert refused["message"].endswith(
        "already exists, and was not written by an export: choose another name"
    )
    assert destination.read_text() == "mine = 1\n"
    unknown = shared.command("aotlens.export", uri, "Nothing")
    assert unknown == {"uri": None, "message": "Nothing has no trace to export: trace it first"}


def test_notebook_cells_and_unsaved_buffers_are_ignored(shared: StrictClient) -> None:
    for uri in ("vscode-notebook-cell:/a.ipynb#X1", "untitled:Untitled-1"):
        text = "# aotlens: example f32[2]\ndef f(x):\n    return x\n"
        item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        shared.notify("textDocument/didOpen", {"textDocument": item})
        shared.change(uri, 2, insert(0, 0, "#"))
        assert shared.request("textDocument/codeLens", {"textDocument": {"uri": uri}}) is None
        assert shared.in_all("inlayHint", uri) is None
        assert shared.command("aotlens.trace", uri)["failure"] == "not-run"
        shared.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    assert shared.all("textDocument/publishDiagnostics") == []


def test_clear_takes_everything_back(shared: StrictClient) -> None:
    uri = traced(shared)
    shared.command("aotlens.clear")
    assert shared.all("textDocument/publishDiagnostics")[-1] == {"uri": uri, "diagnostics": [], "version": 1}
    assert shared.in_all("inlayHint", uri) == []


def test_a_text_that_does_not_parse_keeps_its_last_lenses(shared: StrictClient) -> None:
    uri = shared.open(MODEL)
    before = lenses(shared, uri)
    shared.change(uri, 2, insert(0, 0, "def ("))
    assert lenses(shared, uri) == before


def test_debug_information(shared: StrictClient) -> None:
    assert shared.command("aotlens.explain", "AL101")["uri"] is None or True
    information = shared.command("aotlens.printDebugInformation")
    assert (information["encoding"], information["open"]) == ("utf-16", 0)


def test_the_terminal_app_is_offered_where_the_client_can_open_it() -> None:
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT, options={"terminal": True, "gpu": "h100", "args": ["--small"]})
        uri = traced(process.client, "score")
        offered = [lens[3] for lens in lenses(process.client, uri) if lens[2] == "aotlens.openTui"]
        answer = process.client.command("aotlens.tui", uri, "score")
        held = loads(Path(answer["command"].pop(7)).read_text())
        untraced = process.client.command("aotlens.tui", uri, "Block")
    assert [target.qualname for target in held.targets] == ["score"]
    assert "--report" not in untraced["command"]
    assert offered == [[uri, "score"]]
    assert answer["command"][1:] == [
        *("-P", "-m", "aotlens", "tui", f"{MODEL}::score"),
        *("--report", "--gpu", "h100", "--", "--small"),
    ]
    assert answer["cwd"] == str(ROOT)


def test_the_traced_targets_are_listed_with_their_documents(shared: StrictClient) -> None:
    uri = traced(shared)
    found = shared.command("aotlens.targets", uri)
    assert [(one["qualname"], one["uri"]) for one in found] == [("Block", uri), ("score", uri)]
    assert found[0]["summary"] == "training · 9 fw / 12 bw nodes · saves 8.0 KiB · 3 wrapper steps"
    assert {"forward", "backward", "wrapper"} <= set(found[0]["parts"])
    for part in found[0]["parts"]:
        assert shared.command("aotlens.show", uri, "Block", part)["uri"]
    assert found[0]["exportsTo"] == MODEL.with_name("sample_model_Block_exported.py").as_uri()
    assert shared.command("aotlens.targets", "file:///nowhere.py") == []


def test_a_client_that_asks_is_told_what_is_being_traced() -> None:
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT, options={"status": True})
        traced(process.client, "score")
        process.client.command("aotlens.clear")
        told = process.client.all("aotlens/status")
    running = [{"script": str(MODEL), "qualname": "score"}]
    assert told == [
        {"running": running, "traced": 0},
        {"running": [], "traced": 1},
        {"running": [], "traced": 0},
    ]
