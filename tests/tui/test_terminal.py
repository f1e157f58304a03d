"""The app in a real terminal: it starts, shows, walks the tabs, quits, and leaves the terminal as it was."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aotlens.report import dumps
from tests.report.sample import sample_report
from tests.tui.processes import marked, needs_proc, until

ROOT = Path(__file__).parents[2]
CLEAN = "0 1 0"
pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A tmux session of its own server, so that no other session is touched."""

    def __init__(self, socket: Path) -> None:
        self.socket = str(socket)

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self.socket, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def run(self, *command: str) -> None:
        """Run a command, then say its exit code and wait."""
        here = f"unset COLUMNS LINES; cd {shlex.quote(str(ROOT))}"
        shell = f"{here}; {shlex.join(command)}; echo ended $?; exec sleep 600"
        self.tmux("new-session", "-d", "-x", "120", "-y", "40", shell)

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def modes(self) -> str:
        """Alternate screen, cursor, mouse."""
        return self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}").strip()

    def wait(self, shown: Callable[[str], bool], seconds: float = 60) -> str:
        """The screen once it shows what is waited for."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            screen = self.screen()
            if shown(screen):
                return screen
            time.sleep(0.2)
        pytest.fail(f"the terminal did not show what was waited for:\n{self.screen()}")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    running = Terminal(tmp_path / "tmux")
    yield running
    running.tmux("kill-server")


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


def test_the_gpt_is_traced_in_a_terminal(terminal: Terminal) -> None:
    terminal.run(sys.executable, "-m", "aotlens", "tui", "examples/train_gpt.py")
    terminal.wait(lambda screen: "Tracing examples/train_gpt.py" in screen)
    screen = terminal.wait(lambda screen: "Largest saved values" in screen, seconds=120)
    assert "GPT.forward" in screen
    walk_the_tabs(terminal)
    quit_leaves_it_clean(terminal)


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
    running = marked(mark)
    assert len(running) >= 2, "the app and its worker"
    if sent is signal.SIGINT:
        terminal.keys("C-c")
    else:
        os.kill(running[0], sent)
    screen = terminal.wait(lambda screen: "ended" in screen)
    assert screen.strip() == f"ended {code}"
    assert terminal.modes() == CLEAN
    until(lambda: not marked(mark))
