"""Code actions: fixes, explanations, examples, and changes that no finding asks for."""

from pathlib import Path

from tests.conftest import Golden
from tests.language_servers import ROOT, STAND_IN
from tests.lsp.sample_session import insert, line_of, place_of, shown, traced
from tests.lsp.strict_client import FULL_CAPABILITIES, Json, Process, StrictClient
from tests.report.sample import MODEL


def test_fixes_and_explanations(shared: StrictClient, golden: Golden) -> None:
    uri = traced(shared)
    line, character = place_of("cache.mul_(0.9)")
    at = {"start": {"line": line, "character": character}, "end": {"line": line, "character": character}}
    params = {"textDocument": {"uri": uri}, "range": at, "context": {"diagnostics": []}}
    golden("lsp/actions.json", shown(shared.request("textDocument/codeAction", params)))


def test_an_example_is_offered_for_a_function_without_one(shared: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import torch\n\n\n@torch.no_grad()\ndef add(x, n: int, y=1):\n    return x + n\n")
    uri = shared.open(script)
    at = {"start": {"line": 4, "character": 5}, "end": {"line": 4, "character": 5}}
    params = {"textDocument": {"uri": uri}, "range": at, "context": {"diagnostics": []}}
    place = {"line": 3, "character": 0}
    edit = {"range": {"start": place, "end": place}, "newText": "# aotlens: example f32[8, 16], 1\n"}
    assert shared.request("textDocument/codeAction", params) == [
        {
            "title": "Add an example for add, to trace it",
            "kind": "refactor.rewrite",
            "edit": {
                "documentChanges": [{"textDocument": {"uri": uri, "version": 1}, "edits": [edit]}],
            },
        }
    ]


def test_a_trace_is_offered_as_an_action_too(shared: StrictClient) -> None:
    uri = shared.open(MODEL)
    at = {"line": line_of("def score"), "character": 5}

    def actions(*only: str) -> list[Json]:
        context = {"diagnostics": [], "only": list(only)}
        params = {"textDocument": {"uri": uri}, "range": {"start": at, "end": at}, "context": context}
        return [one["title"] for one in shared.request("textDocument/codeAction", params)]

    assert actions("source") == ["Trace score", "Show the kernels of score for a GPU…"]
    assert actions("source.aotlens.trace") == ["Trace score", "Show the kernels of score for a GPU…"]
    assert actions("quickfix", "source.fixAll") == []


def test_a_rule_is_explained_and_an_unknown_one_named(shared: StrictClient) -> None:
    address = shared.command("aotlens.explain", "AL101")["uri"]
    assert Path(address.removeprefix("file://")).read_text().startswith("# AL101: ")
    assert shared.command("aotlens.explain", "AL999")["uri"] is None
    assert shared.notification("window/showMessage")["message"].startswith("no rule 'AL999'; there is ")


def offered(shared: StrictClient, uri: str, line: int, character: int) -> dict[str, list[Json]]:
    """The edits of each action at a place, by its title."""
    at = {"line": line, "character": character}
    params = {"textDocument": {"uri": uri}, "range": {"start": at, "end": at}, "context": {"diagnostics": []}}
    found = shared.request("textDocument/codeAction", params)
    return {one["title"]: one["edit"]["documentChanges"][0]["edits"] for one in found if "edit" in one}


def test_a_call_that_keeps_memory_can_be_checkpointed(shared: StrictClient) -> None:
    uri = traced(shared)
    line, character = place_of("self.up(x)")
    title = "Checkpoint this call: recompute `self.up` in the backward (it saves 8.0 KiB)"
    edits = offered(shared, uri, line, character)[title]
    assert [one["newText"] for one in edits] == [
        "checkpoint(self.up, x, use_reentrant=False)",
        "from torch.utils.checkpoint import checkpoint\n",
    ]
    shared.change(uri, 2, insert(line, 0, " "))
    assert title not in offered(shared, uri, line, character)


def test_no_grad_can_be_removed_where_it_stands(shared: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "frozen.py"
    script.write_text("import torch\n\n\ndef f(x):\n    with torch.no_grad():\n        return x\n")
    uri = shared.open(script)
    place = {"line": 4, "character": 0}
    body = {"start": {"line": 5, "character": 0}, "end": {"line": 5, "character": 4}}
    assert offered(shared, uri, 4, 12)["Remove no_grad: let autograd record this"] == [
        {"range": {"start": place, "end": {"line": 5, "character": 0}}, "newText": ""},
        {"range": body, "newText": ""},
    ]
    assert offered(shared, uri, 5, 12) == {}


def test_a_client_without_lenses_is_offered_what_they_do_as_actions() -> None:
    text = {**FULL_CAPABILITIES["textDocument"]}
    del text["codeLens"]
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT, capabilities={**FULL_CAPABILITIES, "textDocument": text})
        uri = traced(process.client)
        at = {"line": line_of("class Block"), "character": 7}
        params = {
            "textDocument": {"uri": uri},
            "range": {"start": at, "end": at},
            "context": {"diagnostics": [], "only": ["source.aotlens.show"]},
        }
        found = process.client.request("textDocument/codeAction", params)
    assert [(one["title"], one["command"]["command"], one["command"]["arguments"]) for one in found] == [
        ("Show the forward of Block", "aotlens.show", [uri, "Block", "forward"]),
        ("Show the backward of Block", "aotlens.show", [uri, "Block", "backward"]),
        ("Show the wrapper of Block", "aotlens.show", [uri, "Block", "wrapper"]),
        ("Compare every target of this file with eager", "aotlens.verify", [uri, None]),
    ]
