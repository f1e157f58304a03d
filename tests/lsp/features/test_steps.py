"""The memory of a step in the editor: asked for, shown, and found again without a run."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsp_server.translate.advice import TITLE
from tests.language_servers import REAL, ROOT
from tests.lsp.strict_client import Json, Process, StrictClient

TRAIN = """\
import torch

layer = torch.nn.Linear(1024, 1024, bias=False)
optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
for number in range(50):
    layer(torch.ones(2048, 1024)).relu().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
WAIT_S = 300.0


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictClient]:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path / "cache"))
    with Process(*REAL, "--stdio", forked=True) as process:
        process.client.initialize(ROOT)
        yield process.client


def lenses(client: StrictClient, uri: str) -> list[tuple[int, str]]:
    answer = client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
    return [
        (lens["range"]["start"]["line"], lens["command"]["title"])
        for lens in answer
        if lens["command"]["command"] == "aotlens.fit"
    ]


def hints(client: StrictClient, uri: str) -> dict[int, Json]:
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 100, "character": 0}}
    answer = client.request("textDocument/inlayHint", {"textDocument": {"uri": uri}, "range": whole})
    return {hint["position"]["line"]: hint["label"] for hint in answer}


@pytest.mark.rotates
def test_the_question_at_the_step_is_answered_there(client: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    os.utime(script, (1000, 1000))
    uri = client.open(script)
    assert lenses(client, uri) == [(6, "Will it fit?")]
    params = {"command": "aotlens.fit", "arguments": [uri]}
    answer = client.request("workspace/executeCommand", params, WAIT_S)
    assert answer.get("fits") is True, answer
    assert answer["message"] == "step: 32.0 MiB at the peak, in the backward"
    assert lenses(client, uri) == [(6, answer["message"])]
    shown = hints(client, uri)
    assert shown[2] == "4.0 MiB at the step's peak"
    assert shown[6] == "4.0 MiB at the step's peak"

    with Process(*REAL, "--stdio", forked=True) as process:
        process.client.initialize(ROOT)
        again = process.client.open(script)
        while not hints(process.client, again):
            pass
        assert lenses(process.client, again) == [(6, answer["message"])]
        process.client.change(again, 2, {"text": TRAIN.replace("import torch\n", "import torch\n\n", 1)})
        assert lenses(process.client, again) == [(7, f"before edits: {answer['message']}")]


@pytest.mark.rotates
def test_a_script_that_fails_says_why(client: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch.optim\nraise SystemExit('there is no data')\n")
    uri = client.open(script)
    answer = client.request(
        "workspace/executeCommand", {"command": "aotlens.fit", "arguments": [uri]}, WAIT_S
    )
    assert answer["failure"] == "user"
    assert "there is no data" in answer["message"]


@pytest.mark.rotates
def test_a_script_that_is_saved_during_the_run_keeps_its_lines(client: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    save = "import pathlib; file = pathlib.Path(__file__); file.write_text('#' + chr(10) + file.read_text())"
    script.write_text(TRAIN.replace("import torch", f"import torch; {save}"))
    uri = client.open(script)
    params = {"command": "aotlens.fit", "arguments": [uri]}
    answer = client.request("workspace/executeCommand", params, WAIT_S)
    assert lenses(client, uri) == [(6, answer["message"])]
    assert set(hints(client, uri)) == {2, 5, 6}


PHASED = """\
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x = torch.randn(512, 64)
for number in range(50):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
STEP_LINE = 9


def actions(client: StrictClient, uri: str, line: int) -> dict[str, Json]:
    at = {"line": line, "character": 4}
    params = {"textDocument": {"uri": uri}, "range": {"start": at, "end": at}, "context": {"diagnostics": []}}
    return {action["title"]: action for action in client.request("textDocument/codeAction", params)}


@pytest.mark.rotates
def test_tested_edits_are_actions_at_the_step_until_the_file_changes(
    client: StrictClient, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PHASED)
    os.utime(script, (1000, 1000))
    uri = client.open(script)
    asked = actions(client, uri, STEP_LINE)[TITLE]
    assert asked["command"] == {"title": TITLE, "command": "aotlens.lowerPeak", "arguments": [uri]}
    assert TITLE not in actions(client, uri, 2)
    params = {"command": "aotlens.lowerPeak", "arguments": [uri]}
    answer = client.request("workspace/executeCommand", params, WAIT_S)
    assert answer.get("edits", 0) > 1, answer
    assert answer["message"].startswith(f"{answer['edits']} tested edits lower the peak of ")

    offered = actions(client, uri, STEP_LINE)
    assert TITLE not in offered
    tested = [title for title in offered if title.startswith("tested: ")]
    assert len(tested) == answer["edits"]
    (micro,) = [title for title in tested if "2 micro batches" in title]
    assert micro.endswith(" less at the step's peak)")
    (change,) = offered[micro]["edit"]["documentChanges"]
    assert change["textDocument"] == {"uri": uri, "version": 1}
    assert any("for x_part in x.chunk(2):" in edit["newText"] for edit in change["edits"])
    assert micro in actions(client, uri, change["edits"][0]["range"]["start"]["line"])
    assert script.read_text() == PHASED

    start = {"line": 0, "character": 0}
    client.change(uri, 2, {"range": {"start": start, "end": start}, "text": "# edited\n"})
    edited = actions(client, uri, STEP_LINE + 1)
    assert TITLE in edited
    assert not [title for title in edited if title.startswith("tested: ")]
    assert client.request("workspace/executeCommand", params, WAIT_S)["failure"] == "not-run"
