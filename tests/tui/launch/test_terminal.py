"""The app in a real terminal: it starts, shows, walks the tabs, quits, and leaves the terminal as it was."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotlens.model import dumps
from tests.report.sample import sample_report
from tests.tui.processes import marked, needs_proc, until
from tests.tui.terminal import CLEAN, ROOT, Terminal, needs_tmux, new_terminal

pytestmark = needs_tmux


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    yield from new_terminal(tmp_path)


def walk_the_tabs(terminal: Terminal) -> None:
    marks = (
        "handled",
        "functional",
        "operation",
        "not saved",
        "at the peak",
        "why",
        "kernel",
        "diagnostic",
        "│",
    )
    for place, mark in enumerate(marks, 2):
        terminal.keys(str(place % 10))
        terminal.wait(lambda screen, mark=mark: mark in screen)  # type: ignore[misc]


def quit_leaves_it_clean(terminal: Terminal) -> None:
    terminal.keys("q")
    screen = terminal.wait(lambda screen: "ended 0" in screen)
    assert screen.strip() == "ended 0"
    assert terminal.modes() == CLEAN


def test_a_saved_report_in_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(dumps(sample_report()), encoding="utf-8")
    terminal.run(sys.executable, "-m", "aotlens", "tui", "--report", str(report))
    terminal.wait(lambda screen: "Largest saved values" in screen)
    walk_the_tabs(terminal)
    quit_leaves_it_clean(terminal)


@pytest.mark.rotates
def test_the_gpt_is_traced_in_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    """With few steps: of an endless training, the app waits 10 s for other targets."""
    script = tmp_path / "train_gpt.py"
    script.write_text(_with_few_steps(ROOT / "examples" / "train_gpt.py"))
    terminal.run(sys.executable, "-m", "aotlens", "tui", str(script))
    terminal.wait(lambda screen: "Tracing " in screen)
    screen = terminal.wait(lambda screen: "Largest saved values" in screen)
    assert "GPT.forward" in screen
    walk_the_tabs(terminal)
    quit_leaves_it_clean(terminal)


def _with_few_steps(example: Path) -> str:
    """The same training in another folder, from the same text."""
    source = example.read_text()
    for old, new in (("steps: int = 300", "steps: int = 3"), ("Path(__file__)", f"Path({str(example)!r})")):
        assert source.count(old) == 1
        source = source.replace(old, new)
    return source


@pytest.mark.rotates
@needs_proc
@pytest.mark.parametrize(
    ("sent", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["ctrl-c", "terminated", "hung up"],
)
def test_ended_while_tracing_it_leaves_a_clean_terminal_and_no_process(
    terminal: Terminal, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    """The worker and its children carry a mark in their environment, by which they are found."""
    mark = f"AOTLENS_TEST_MARK={tmp_path}"
    terminal.run("env", mark, sys.executable, "-m", "aotlens", "tui", "examples/train_gpt.py")
    terminal.wait(lambda screen: "Tracing examples/train_gpt.py" in screen)
    until(lambda: len(marked(mark)) >= 2)  # the app and its worker
    running = marked(mark)
    if sent is signal.SIGINT:
        terminal.keys("C-c")
    else:
        os.kill(running[0], sent)
    screen = terminal.wait(lambda screen: screen.strip().startswith("ended"))
    assert screen.strip() == f"ended {code}"
    assert terminal.modes() == CLEAN
    until(lambda: not marked(mark))
