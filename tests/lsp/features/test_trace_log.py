"""A log of torch's that the project names: hints and findings without a trace here."""

import gzip
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from lsp_server.runs.trace_log import NamedLog, age_text, named_log
from tests.command import ROOT
from tests.language_servers import REAL
from tests.lsp.strict_client import Process
from tests.report.sample import sample_report

TRACES = ROOT / "tests" / "trace"


def _project(folder: Path, log: str, program: str = "tensor_parallel") -> Path:
    """A checkout of the program in another folder, and a log of another machine."""
    (folder / "pyproject.toml").write_text(f'[tool.aotlens]\ntrace = "{log}"\n')
    shutil.copytree(TRACES / "logs" / f"{program}-aot_eager", folder / "logs")
    script = folder / "src" / f"{program}.py"
    script.parent.mkdir()
    shutil.copy(TRACES / "programs" / f"{program}.py", script)
    return script


def test_an_opened_file_has_findings_of_the_log_and_its_age(tmp_path: Path) -> None:
    script = _project(tmp_path, "logs")
    hours_ago = time.time() - 2 * 3_600 - 5
    for path in (tmp_path / "logs", *(tmp_path / "logs").iterdir()):
        os.utime(path, (hours_ago, hours_ago))
    with Process(*REAL, forked=True) as process:
        client = process.client
        client.initialize(tmp_path)
        uri = client.open(script)
        message = client.wait(lambda one: one.get("method") == "window/showMessage", "the log's age")
        assert message["params"]["message"] == (
            "aotlens: hints come from logs, recorded 2 hours ago with torch 2.13.0+cpu"
        )
        found = client.wait(
            lambda one: (
                one.get("method") == "textDocument/publishDiagnostics"
                and one["params"]["uri"] == uri
                and bool(one["params"]["diagnostics"])
            ),
            "findings",
        )
        (ranks,) = [entry for entry in found["params"]["diagnostics"] if entry["code"] == "AL410"]
        assert ranks["range"]["start"] == {"line": 18, "character": 14}


@pytest.mark.rotates
def test_saved_bytes_stand_at_their_expressions(tmp_path: Path) -> None:
    script = _project(tmp_path, "logs", "gpt")
    with Process(*REAL, forked=True) as process:
        client = process.client
        client.initialize(tmp_path)
        uri = client.open(script)
        client.wait(lambda one: one.get("method") == "window/showMessage", "the log's age")
        places = [hint["position"] for hint in client.in_all("inlayHint", uri)]
        before, expression, _ = script.read_text().splitlines()[33].partition("self.up(self.norm2(x))")
        assert {"line": 33, "character": len(before + expression)} in places


def test_texts_of_a_hostile_log_cannot_act_on_the_editor(tmp_path: Path) -> None:
    """A message of the log arrives as plain text, without control characters; the server answers on."""
    script = _project(tmp_path, "logs", "breaks")
    (packed,) = (tmp_path / "logs").iterdir()
    evil = "\x1b]0;owned\x07 [run](command:evil) <img src=x onerror=alert(1)> \u202e"
    text = gzip.decompress(packed.read_bytes()).decode()
    shown = "Dynamo does not know how to trace builtin operator"
    assert shown in text
    packed.write_bytes(gzip.compress(text.replace(shown, evil).encode()))
    with Process(*REAL, forked=True) as process:
        client = process.client
        client.initialize(tmp_path)
        uri = client.open(script)
        published = client.wait(
            lambda message: (
                message.get("method") == "textDocument/publishDiagnostics"
                and bool(message["params"]["diagnostics"])
            ),
            "findings",
        )
        messages = [entry["message"] for entry in published["params"]["diagnostics"]]
        assert any("[run](command:evil) <img src=x" in message for message in messages)
        client.in_all("inlayHint", uri)
        everything = json.dumps(client.received)  # escapes control characters
        assert not any(sign in everything for sign in ("\\u001b", "\\u0007", "\\u202e"))


def test_a_log_that_is_not_there_is_one_warning(tmp_path: Path) -> None:
    script = _project(tmp_path, "no-logs")
    with Process(*REAL, forked=True) as process:
        process.client.initialize(tmp_path)
        process.client.open(script)
        message = process.client.wait(lambda one: one.get("method") == "window/showMessage", "the warning")
        assert "no-logs" in message["params"]["message"]


@pytest.mark.parametrize("text", ["", "[tool.aotlens]\n", "[tool.aotlens]\ntrace = 3\n", "[tool\n"])
def test_a_project_without_a_log_has_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert named_log(str(tmp_path / "a.py")) is None


def test_ages() -> None:
    def age(seconds: float) -> str:
        log = NamedLog(Path("a.log"), Path(), time.time() - seconds)
        return age_text(log, sample_report()).partition(", recorded ")[2].partition(" with ")[0]

    ages = [age(seconds) for seconds in (0.5, 61, 3 * 86_400 + 9)]
    assert ages == ["0 seconds ago", "1 minute ago", "3 days ago"]
