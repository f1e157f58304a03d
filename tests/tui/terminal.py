"""A real terminal for tests: tmux, with a server of its own."""

import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLEAN = "0 1 0"
"""No alternate screen, the cursor shown, no mouse: as a shell has it."""

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


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

    def wait(self, shown: Callable[[str], bool], seconds: float = 180) -> str:
        """The screen once it shows what is waited for."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            screen = self.screen()
            if shown(screen):
                return screen
            time.sleep(0.2)
        pytest.fail(f"the terminal did not show what was waited for:\n{self.screen()}")


def new_terminal(folder: Path) -> Iterator[Terminal]:
    """For a fixture."""
    running = Terminal(folder / "tmux")
    yield running
    running.tmux("kill-server")
