"""How the app starts, and how it refuses to."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import tui
from aotlens.errors import AotlensError
from tui import launch
from tui.tracing import TraceTarget


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stdout that says it is a terminal."""
    stdout = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(launch, "sys", SimpleNamespace(stdout=stdout))
    monkeypatch.setenv("TERM", "xterm-256color")


def refusal(path: str | None, report: str | None = None) -> tuple[str, int]:
    with pytest.raises(AotlensError) as caught:
        launch.run(TraceTarget(path) if path else None, report)
    return str(caught.value), caught.value.exit_code


def test_without_a_terminal_it_names_the_other_command() -> None:
    assert refusal("train.py") == (
        "the terminal app needs a terminal with cursor control; use `aotlens inspect train.py` here",
        2,
    )


@pytest.mark.usefixtures("terminal")
def test_a_dumb_terminal_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert refusal("train.py")[0].endswith("use `aotlens inspect train.py` here")
    assert refusal(None)[0].endswith("--serve shows it in a browser")


@pytest.mark.usefixtures("terminal")
def test_reports_that_cannot_be_read_are_one_error(tmp_path: Path) -> None:
    newer, missing = tmp_path / "newer.json", tmp_path / "none.json"
    newer.write_text('{"schema": "aotlens.report/9"}', encoding="utf-8")
    assert refusal(None, str(missing)) == (f"{missing}: cannot be read: No such file or directory", 2)
    message, code = refusal(None, str(newer))
    assert ("aotlens.report/9" in message, code) == (True, 2)


def test_a_bad_report_is_named_without_a_terminal(tmp_path: Path) -> None:
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe")
    assert refusal(None, str(binary)) == (f"{binary}: not a report: it is not UTF-8 text (byte 0)", 2)
    assert refusal(None, str(tmp_path))[0] == f"{tmp_path}: cannot be read: Is a directory"


@pytest.mark.usefixtures("terminal")
def test_nothing_to_show_is_one_error() -> None:
    assert refusal(None) == (
        "nothing to show: name a script, for example `aotlens tui train.py`, or a report with --report FILE",
        2,
    )


@pytest.mark.parametrize("users", [None, "30"])
def test_the_frames_per_second_do_not_reach_the_users_script(users: str | None) -> None:
    code = (
        "import os, tui.app; from textual import constants\n"
        "print(constants.MAX_FPS, os.environ.get('TEXTUAL_FPS'))"
    )
    env = {name: value for name, value in os.environ.items() if name != tui.FRAMES_VARIABLE}
    env |= {} if users is None else {tui.FRAMES_VARIABLE: users}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == [users or str(tui.FRAMES_PER_S), str(users)]
