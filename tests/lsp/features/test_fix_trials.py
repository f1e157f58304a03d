"""Fixes that are tried from the editor, and the quick fixes for those that passed."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotlens.model.source import Edit, Span
from lsp_server.translate.fixes import TITLE, overlapping
from tests.language_servers import REAL, ROOT
from tests.lsp.processes import alive, descendants
from tests.lsp.strict_client import Json, Process, StrictClient

TWO_BREAKS = """\
import torch


@torch.compile(backend="aotlens", options={"backend": "eager"})
def step(x):
    y = torch.relu(x)
    if y.sum() > 0:
        y = y * 2
    print("step")
    return y + 1


for _ in range(2):
    print(step(torch.ones(4)).sum().item())
"""
WAIT_S = 300.0
"""Four processes that load torch, on a busy machine."""


@pytest.fixture
def client() -> Iterator[StrictClient]:
    """Of a server in a fork, as are the command that tries fixes and the script's children."""
    with Process(*REAL, "--stdio", forked=True) as process:
        process.client.initialize(ROOT)
        yield process.client


def run(client: StrictClient, command: str, uri: str) -> Json:
    params = {"command": command, "arguments": [uri]}
    return client.request("workspace/executeCommand", params, WAIT_S)


def actions(client: StrictClient, uri: str, line: int) -> dict[str, Json]:
    at = {"line": line, "character": 8}
    params = {"textDocument": {"uri": uri}, "range": {"start": at, "end": at}, "context": {"diagnostics": []}}
    return {action["title"]: action for action in client.request("textDocument/codeAction", params)}


@pytest.mark.rotates
def test_fixes_that_passed_are_quick_fixes_until_an_edit(client: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TWO_BREAKS)
    uri = client.open(script)
    traced = run(client, "aotlens.trace", uri)
    assert traced.get("targets"), traced
    before = actions(client, uri, 6)
    assert before[TITLE]["command"] == {"title": TITLE, "command": "aotlens.tryFixes", "arguments": [uri]}
    assert not [title for title in before if title.startswith("tested:")]

    answer = run(client, "aotlens.tryFixes", uri)
    assert (answer.get("passed"), answer.get("tried")) == (2, 2), answer
    assert answer["message"].startswith("Tested, 2 fixes together: graph breaks 2 → 0, compilations ")
    assert script.read_text() == TWO_BREAKS

    after = actions(client, uri, 6)
    title = "tested: Compute both sides and choose with torch.where"
    assert TITLE not in after
    assert [name for name in after if name.startswith("tested:")] == [title, "tested: apply all 2 fixes"]
    (change,) = after[title]["edit"]["documentChanges"]
    assert change["textDocument"] == {"uri": uri, "version": 1}
    assert change["edits"] == [
        {
            "range": {"start": {"line": 6, "character": 4}, "end": {"line": 7, "character": 17}},
            "newText": "y = torch.where(y.sum() > 0, y * 2, y)",
        }
    ]
    assert after[title]["kind"] == "quickfix"
    assert after[title]["diagnostics"][0]["code"] == "AL406"
    (change,) = after["tested: apply all 2 fixes"]["edit"]["documentChanges"]
    assert len(change["edits"]) > 1

    start = {"line": 12, "character": 0}
    client.change(uri, 2, {"range": {"start": start, "end": start}, "text": "# edited\n"})
    edited = actions(client, uri, 6)
    assert TITLE in edited
    assert not [name for name in edited if name.startswith("tested:")]
    assert run(client, "aotlens.tryFixes", uri)["failure"] == "not-run"


@pytest.mark.rotates
def test_a_cancelled_run_leaves_no_process(tmp_path: Path) -> None:
    with Process(*REAL, "--stdio") as process:
        process.client.initialize(ROOT)
        _cancels(process, tmp_path)


def _cancels(process: Process, tmp_path: Path) -> None:
    client, started = process.client, tmp_path / "started"
    script = tmp_path / "script.py"
    script.write_text(
        f"import os, pathlib, time\npathlib.Path({str(started)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    uri = client.open(script)
    assert not started.exists()
    request = client.send("workspace/executeCommand", {"command": "aotlens.tryFixes", "arguments": [uri]})
    end = time.monotonic() + WAIT_S
    while not (started.exists() and started.read_text()):
        assert time.monotonic() < end
        time.sleep(0.05)
    child = int(started.read_text())
    assert child in descendants(process.popen.pid)
    assert client.command("aotlens.cancel", uri) == 1
    assert client.answer(request)["failure"] == "cancelled"
    while alive(child):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.rotates
def test_a_script_that_fails_has_no_fixes(client: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import torch\nraise ValueError('broken')\n")
    uri = client.open(script)
    answer = run(client, "aotlens.tryFixes", uri)
    assert answer["failure"] == "user"
    assert "script.py fails" in answer["message"]


def test_edits_that_touch_are_not_joined() -> None:
    def edit(col: int, end_col: int) -> Edit:
        return Edit(Span("a.py", 1, col, 1, end_col), "x")

    assert overlapping((edit(0, 4), edit(3, 5)))
    assert overlapping((edit(2, 2), Edit(Span("a.py", 1, 2, 1, 2), "y")))
    assert not overlapping((edit(0, 3), edit(3, 5)))
