"""Every feature's whole answer, from the sample report."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Golden
from tests.lsp.conftest import ROOT, STAND_IN
from tests.lsp.strict_client import FULL_CAPABILITIES, Json, Process, StrictClient
from tests.report.sample import MODEL

LINES = MODEL.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def session() -> Iterator[StrictClient]:
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT)
        yield process.client


@pytest.fixture
def client(session: StrictClient) -> Iterator[StrictClient]:
    """One session for all tests of this file, as new for each: nothing open, nothing traced, no settings."""
    session.received.clear()
    yield session
    session.notify("workspace/didChangeConfiguration", {"settings": {"aotlens": {}}})
    for uri in session.opened:
        session.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    session.opened.clear()
    session.command("aotlens.clear")


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(LINES) if text in line)


def place_of(text: str, inside: str | None = None) -> tuple[int, int]:
    """The place one character into `text`; all of it is ASCII where this is used."""
    number = line_of(inside or text)
    return number, LINES[number].index(text) + 1


def insert(line: int, character: int, text: str) -> dict[str, Json]:
    place = {"line": line, "character": character}
    return {"range": {"start": place, "end": place}, "text": text}


def shown(value: Json) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)


def lenses(client: StrictClient, uri: str) -> list[tuple[int, str, str, list[Json]]]:
    found = client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
    return [
        (
            lens["range"]["start"]["line"],
            lens["command"]["title"],
            lens["command"]["command"],
            lens["command"]["arguments"],
        )
        for lens in found
    ]


def hint_list(client: StrictClient, uri: str) -> list[tuple[int, int, str]]:
    return [
        (hint["position"]["line"], hint["position"]["character"], hint["label"])
        for hint in client.in_all("inlayHint", uri)
    ]


def traced(client: StrictClient, qualname: str | None = None) -> str:
    uri = client.open(MODEL)
    assert "targets" in client.command("aotlens.trace", uri, qualname)
    return uri


def test_capabilities(golden: Golden) -> None:
    with Process(*STAND_IN) as process:
        result = process.client.initialize(ROOT)
    assert result["serverInfo"]["name"] == "aotlens"
    golden("lsp/capabilities.json", shown(result["capabilities"]))


def test_before_a_trace_there_is_only_a_lens(client: StrictClient) -> None:
    uri = client.open(MODEL)
    assert lenses(client, uri) == [(line_of("def score"), "Trace", "aotlens.trace", [uri, "score"])]
    assert client.in_all("inlayHint", uri) == []
    assert client.at("hover", uri, *place_of("self.up(x)")) is None
    assert client.all("textDocument/publishDiagnostics") == []


def test_diagnostics_and_refreshes_follow_a_trace(client: StrictClient, golden: Golden) -> None:
    uri = traced(client)
    golden("lsp/diagnostics.json", shown(client.diagnostics(uri)))
    asked = [message.get("method") for message in client.received if "id" in message]
    assert "workspace/inlayHint/refresh" in asked
    assert "workspace/codeLens/refresh" in asked


def test_a_client_without_refresh_and_progress_is_sent_neither() -> None:
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT, capabilities={})
        traced(process.client)
        asked = [message["method"] for message in process.client.received if "method" in message]
    assert asked == ["textDocument/publishDiagnostics"]


def test_lenses_after_a_trace(client: StrictClient) -> None:
    uri = traced(client)
    block, score = line_of("class Block"), line_of("def score")
    assert lenses(client, uri) == [
        (
            block,
            "training · 9 fw / 12 bw nodes · saves 8.0 KiB · 3 wrapper steps",
            "aotlens.show",
            [uri, "Block", "forward"],
        ),
        (block, "backward", "aotlens.show", [uri, "Block", "backward"]),
        (block, "wrapper", "aotlens.show", [uri, "Block", "wrapper"]),
        (block, "verify", "aotlens.verify", [uri, None]),
        (block, "trace again", "aotlens.trace", [uri, None]),
        (score, "inference · 2 nodes · no wrapper steps", "aotlens.show", [uri, "score", "inference"]),
        (score, "wrapper", "aotlens.show", [uri, "score", "wrapper"]),
        (score, "verify", "aotlens.verify", [uri, None]),
        (score, "trace again", "aotlens.trace", [uri, None]),
    ]


def test_two_targets_traced_by_name_stand_side_by_side(client: StrictClient) -> None:
    uri = traced(client, "score")
    assert [title for _, title, _, _ in lenses(client, uri)][-1] == "trace again"
    client.command("aotlens.trace", uri, "Block")
    assert {line for line, *_ in lenses(client, uri)} == {line_of("class Block"), line_of("def score")}


def test_hints(client: StrictClient, golden: Golden) -> None:
    uri = traced(client)
    golden("lsp/hints.json", shown(client.in_all("inlayHint", uri)))


def test_hints_of_a_range_only(client: StrictClient) -> None:
    uri = traced(client)
    line = line_of("logits = x @ head")
    part = {"start": {"line": line, "character": 0}, "end": {"line": line + 1, "character": 0}}
    found = client.request("textDocument/inlayHint", {"textDocument": {"uri": uri}, "range": part})
    assert [hint["label"] for hint in found] == [": f32[32, 10]"]


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("shapes", ["mutated", "saved 8.0 KiB"]),
        ("saved", ["mutated", ": f32[32, 64]", ": f32[32, 64]", ": f32[32, 10]"]),
        ("mutations", [": f32[32, 64]", "saved 8.0 KiB", ": f32[32, 64]", ": f32[32, 10]"]),
    ],
)
def test_each_kind_of_hint_can_be_switched_off(client: StrictClient, kind: str, left: list[str]) -> None:
    uri = traced(client)
    settings = {"aotlens": {"inlayHints": {kind: False}}}
    client.notify("workspace/didChangeConfiguration", {"settings": settings})
    assert [label for _, _, label in hint_list(client, uri)] == left


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


def test_hovers(client: StrictClient, golden: Golden) -> None:
    uri = traced(client)
    texts = []
    for text, inside in HOVERS:
        line, character = place_of(text, inside)
        answer = client.at("hover", uri, line, character)
        assert answer["contents"]["kind"] == "markdown"
        texts.append(f"# {line + 1}: {text}\n{shown(answer['range'])}\n{answer['contents']['value']}")
        assert len(answer["contents"]["value"].splitlines()) < 30
    golden("lsp/hovers.md", "\n\n".join(texts))


def test_no_hover_where_nothing_was_computed(client: StrictClient) -> None:
    uri = traced(client)
    assert client.at("hover", uri, line_of("import torch"), 3) is None
    assert client.at("hover", uri, 100_000, 0) is None


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


def test_fixes_and_explanations(client: StrictClient, golden: Golden) -> None:
    uri = traced(client)
    line, character = place_of("cache.mul_(0.9)")
    at = {"start": {"line": line, "character": character}, "end": {"line": line, "character": character}}
    params = {"textDocument": {"uri": uri}, "range": at, "context": {"diagnostics": []}}
    golden("lsp/actions.json", shown(client.request("textDocument/codeAction", params)))


def test_an_example_is_offered_for_a_function_without_one(client: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import torch\n\n\n@torch.no_grad()\ndef add(x, n: int, y=1):\n    return x + n\n")
    uri = client.open(script)
    at = {"start": {"line": 4, "character": 5}, "end": {"line": 4, "character": 5}}
    params = {"textDocument": {"uri": uri}, "range": at, "context": {"diagnostics": []}}
    place = {"line": 3, "character": 0}
    edit = {"range": {"start": place, "end": place}, "newText": "# aotlens: example f32[8, 16], 1\n"}
    assert client.request("textDocument/codeAction", params) == [
        {
            "title": "Add an example for add, to trace it",
            "kind": "refactor.rewrite",
            "edit": {
                "documentChanges": [{"textDocument": {"uri": uri, "version": 1}, "edits": [edit]}],
            },
        }
    ]


def test_a_bad_example_is_named_while_it_is_typed(client: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "typed.py"
    script.write_text("# 漢🙂\n# aotlens: example f32[8], q[2]\ndef f(x, y):\n    return x\n")
    uri = client.open(script)
    found = client.diagnostics(uri)["diagnostics"]
    assert [(one["code"], one["severity"], one["range"]["start"]) for one in found] == [
        ("AL906", 1, {"line": 1, "character": 27})
    ]
    part = {"start": {"line": 1, "character": 27}, "end": {"line": 1, "character": 28}}
    client.change(uri, 2, {"range": part, "text": "f32"})
    assert client.notification("textDocument/publishDiagnostics", version=2)["diagnostics"] == []


def test_a_trace_is_offered_as_an_action_too(client: StrictClient) -> None:
    uri = client.open(MODEL)
    at = {"line": line_of("def score"), "character": 5}

    def actions(*only: str) -> list[Json]:
        context = {"diagnostics": [], "only": list(only)}
        params = {"textDocument": {"uri": uri}, "range": {"start": at, "end": at}, "context": context}
        return [one["title"] for one in client.request("textDocument/codeAction", params)]

    assert actions("source") == ["Trace score"]
    assert actions("source.aotlens.trace") == ["Trace score"]
    assert actions("quickfix", "source.fixAll") == []


def test_places_move_with_the_text_and_changed_lines_show_nothing(client: StrictClient) -> None:
    uri = traced(client)
    before = hint_list(client, uri)
    client.change(uri, 2, insert(0, 0, "# new\n"))
    assert hint_list(client, uri) == [(line + 1, character, label) for line, character, label in before]
    gelu = line_of("hidden = functional") + 1
    client.change(uri, 3, insert(gelu, 0, " "))
    assert hint_list(client, uri) == [
        (line + 1, character, label) for line, character, label in before if line + 1 != gelu
    ]
    found = client.notification("textDocument/publishDiagnostics", uri=uri, version=3)
    assert [(one["code"], one["range"]["start"]["line"]) for one in found["diagnostics"]] == [
        ("AL101", line_of("cache.mul_(0.9)") + 1)
    ]
    assert lenses(client, uri)[0][1].startswith("before edits: training")
    hover = client.at("hover", uri, line_of("cache.mul_(0.9)") + 1, 12)
    assert hover["contents"]["value"].endswith("*From the trace before the last edits.*")


def test_undo_brings_everything_back(client: StrictClient) -> None:
    uri = traced(client)
    before = client.in_all("inlayHint", uri), lenses(client, uri)
    client.change(uri, 2, insert(21, 4, "# "))
    assert client.in_all("inlayHint", uri) != before[0]
    whole = {"text": MODEL.read_text(encoding="utf-8")}
    client.change(uri, 3, whole)
    assert (client.in_all("inlayHint", uri), lenses(client, uri)) == before


def test_graph_documents_lead_to_the_expression_and_back() -> None:
    with Process(*STAND_IN) as process:
        client = process.client
        client.initialize(ROOT, {"virtualDocuments": True})
        uri = traced(client)
        shown_answer = client.command("aotlens.show", uri, "Block", "backward")
        assert shown_answer["shown"] is True
        assert client.notification("window/showDocument")["uri"] == shown_answer["uri"]
        page = client.request("aotlens/document", {"uri": shown_answer["uri"]})
        assert page["languageId"] == "python"
        text = page["text"].splitlines()
        line = next(number for number, one in enumerate(text) if one.startswith("    gelu_backward ="))
        gelu = line_of("hidden = functional")
        expression = {"start": {"line": gelu, "character": 17}, "end": {"line": gelu, "character": 44}}
        found = client.at("definition", shown_answer["uri"], line, 4)
        assert found == [{"uri": uri, "range": expression}]
        nodes = client.at("implementation", uri, gelu, 18)
        assert {"line": line, "character": 0} in [one["range"]["start"] for one in nodes]
        assert [one["uri"].partition("?")[0] for one in nodes] == [
            "aotlens:/Block/forward.py",
            "aotlens:/Block/backward.py",
        ]
        symbols = client.request(
            "textDocument/documentSymbol", {"textDocument": {"uri": shown_answer["uri"]}}
        )
        assert ("gelu_backward", "f32[32, 64]") in [(one["name"], one["detail"]) for one in symbols]


def test_verifying_tells_each_target_and_marks_what_differs(client: StrictClient) -> None:
    uri = traced(client)
    assert "verify" in [title for _, title, _, _ in lenses(client, uri)]
    assert client.command("aotlens.verify", uri)["verified"] == {"Block": True, "score": False}
    said = client.all("window/showMessage")
    assert [(one["type"], one["message"]) for one in said] == [
        (3, "Block: 3 values equal eager"),
        (1, "score: out differs by 0.5"),
    ]
    titles = [title for _, title, _, _ in lenses(client, uri)]
    assert any(title.endswith("· verified") for title in titles)
    assert any(title.endswith("· DIFFERS FROM EAGER") for title in titles)
    assert "verify" not in titles
    found = client.all("textDocument/publishDiagnostics")[-1]["diagnostics"]
    assert [one["message"] for one in found if one["code"] == "AL701"] == ["out differs by 0.5"]


def test_an_export_is_a_file_and_never_written_over_another(client: StrictClient, tmp_path: Path) -> None:
    uri = traced(client)
    destination = tmp_path / "block.py"
    answer = client.command("aotlens.export", uri, "Block", destination.as_uri())
    assert answer["uri"] == destination.as_uri()
    assert "class Block(torch.autograd.Function):" in destination.read_text()
    destination.write_text('"""Generated by aotlens; needs torch only."""\n')
    assert client.command("aotlens.export", uri, "Block", destination.as_uri())["uri"] is not None
    destination.write_text("mine = 1\n")
    refused = client.command("aotlens.export", uri, "Block", destination.as_uri())
    assert refused["message"].endswith("is there already, and no export wrote it: give another name")
    assert destination.read_text() == "mine = 1\n"
    unknown = client.command("aotlens.export", uri, "Nothing")
    assert unknown == {"uri": None, "message": "Nothing has no trace to export: trace it first"}


def test_kernels_for_a_gpu_are_documents_in_each_language() -> None:
    with Process(*STAND_IN) as process:
        client = process.client
        client.initialize(ROOT, {"virtualDocuments": True})
        uri = traced(client, "gpu")
        name = "triton_poi_fused_mul_sigmoid_0"

        def page(part: str) -> object:
            address = client.command("aotlens.show", uri, "Block", part)["uri"]
            return client.request("aotlens/document", {"uri": address})

        assert page(name) == {"text": "import triton", "languageId": "python"}
        assert page(f"{name}.ptx") == {"text": ".version 8.7", "languageId": "plaintext"}
        line, character = place_of("hidden.sigmoid()")
        leads = client.at("implementation", uri, line, character + 8)
        assert leads[-1]["uri"].partition("?")[0] == f"aotlens:/Block/{name}.py"
        told = client.at("hover", uri, line, character + 8)["contents"]["value"]
        assert "moves 24.0 KiB, 40 registers, spills 48 B, 75% of the warps fit, at least 0.50 µs" in told


@pytest.mark.parametrize("uri", ["aotlens:/x?%%", "aotlens:/x", "aotlens:/x?W10", "file:///x?W10"])
def test_a_made_up_document_has_no_text(client: StrictClient, uri: str) -> None:
    assert client.request("aotlens/document", {"uri": uri}) is None


def test_without_virtual_documents_the_pages_are_read_only_files(client: StrictClient) -> None:
    uri = traced(client)
    address = client.command("aotlens.show", uri, "Block", "wrapper")["uri"]
    file = Path(address.removeprefix("file://"))
    assert "class Block(torch.autograd.Function):" in file.read_text()
    assert file.stat().st_mode & 0o222 == 0
    assert client.command("aotlens.show", uri, "Block", "kernels") == {
        "uri": None,
        "message": "Block has no kernels program: it has captured, functional, joint, forward, backward, "
        "wrapper, cpp_fused_mul_sigmoid_0",
    }


def test_a_name_is_left_to_the_python_server_and_an_operator_is_ours(client: StrictClient) -> None:
    uri = traced(client)
    line, character = place_of("* hidden.sigmoid()")
    assert client.at("definition", uri, line, character + 2) is None
    assert client.at("definition", uri, line, character - 1) is not None


def test_notebook_cells_and_unsaved_buffers_are_ignored(client: StrictClient) -> None:
    for uri in ("vscode-notebook-cell:/a.ipynb#X1", "untitled:Untitled-1"):
        text = "# aotlens: example f32[2]\ndef f(x):\n    return x\n"
        item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        client.notify("textDocument/didOpen", {"textDocument": item})
        client.change(uri, 2, insert(0, 0, "#"))
        assert client.request("textDocument/codeLens", {"textDocument": {"uri": uri}}) is None
        assert client.in_all("inlayHint", uri) is None
        assert client.command("aotlens.trace", uri)["failure"] == "refused"
        client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    assert client.all("textDocument/publishDiagnostics") == []


def test_clear_takes_everything_back(client: StrictClient) -> None:
    uri = traced(client)
    client.command("aotlens.clear")
    assert client.all("textDocument/publishDiagnostics")[-1] == {"uri": uri, "diagnostics": [], "version": 1}
    assert client.in_all("inlayHint", uri) == []


def test_a_text_that_does_not_parse_keeps_its_last_lenses(client: StrictClient) -> None:
    uri = client.open(MODEL)
    before = lenses(client, uri)
    client.change(uri, 2, insert(0, 0, "def ("))
    assert lenses(client, uri) == before


def test_a_rule_is_explained_and_an_unknown_one_named(client: StrictClient) -> None:
    address = client.command("aotlens.explain", "AL101")["uri"]
    assert Path(address.removeprefix("file://")).read_text().startswith("# AL101: ")
    assert client.command("aotlens.explain", "AL999")["uri"] is None
    assert client.notification("window/showMessage")["message"].startswith("no rule 'AL999'; there is ")


def test_debug_information(client: StrictClient) -> None:
    assert client.command("aotlens.explain", "AL101")["uri"] is None or True
    information = client.command("aotlens.printDebugInformation")
    assert (information["encoding"], information["open"]) == ("utf-16", 0)


def test_the_terminal_app_is_offered_where_the_client_can_open_it() -> None:
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT, options={"terminal": True, "gpu": "h100", "args": ["--small"]})
        uri = traced(process.client, "score")
        offered = [lens[3] for lens in lenses(process.client, uri) if lens[2] == "aotlens.openTui"]
        answer = process.client.command("aotlens.tui", uri, "score")
    assert offered == [[uri, "score"]]
    assert answer["command"][1:] == [
        *("-P", "-m", "aotlens", "tui", f"{MODEL}::score"),
        *("--gpu", "h100", "--", "--small"),
    ]
    assert answer["cwd"] == str(ROOT)


def test_the_traced_targets_are_listed_with_their_documents(client: StrictClient) -> None:
    uri = traced(client)
    found = client.command("aotlens.targets", uri)
    assert [(one["qualname"], one["uri"]) for one in found] == [("Block", uri), ("score", uri)]
    assert found[0]["summary"] == "training · 9 fw / 12 bw nodes · saves 8.0 KiB · 3 wrapper steps"
    assert {"forward", "backward", "wrapper"} <= set(found[0]["parts"])
    for part in found[0]["parts"]:
        assert client.command("aotlens.show", uri, "Block", part)["uri"]
    assert client.command("aotlens.targets", "file:///nowhere.py") == []


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
