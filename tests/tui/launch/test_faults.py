"""What goes wrong outside: a script that hangs, a worker that is killed, a machine without torch."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from aotlens.model import dumps
from tests.report.sample import sample_report
from tests.tui.processes import marked, needs_proc, until
from tests.tui.terminal import CLEAN, Terminal, needs_tmux, new_terminal

HANGS = """\
import time
print("about to hang")
time.sleep(3600)
"""
WITHOUT_TORCH = """\
import asyncio, sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] not in ("torch", "sample_model"), f"imports {name}"

sys.meta_path.insert(0, Forbidden())
from tui.app import AotlensApp
from tui.launch import read_report
from tui.panes.registry import CHOICES

async def walk():
    app = AotlensApp(sys.argv[1], report=read_report(sys.argv[1]))
    async with app.run_test(size=(120, 40)) as pilot:
        for key, _, _ in CHOICES:
            await pilot.press(key, "end", "enter")
        await pilot.press("s")

asyncio.run(walk())
engine = ("pipeline", "session", "capture", "analysis", "joint", "partition", "codegen", "runtime")
loaded = [name for name in sys.modules if name.startswith(tuple(f"aotlens.{part}" for part in engine))]
print("walked", loaded)
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    yield from new_terminal(tmp_path)


@pytest.mark.rotates
@needs_proc
@needs_tmux
def test_a_script_that_hangs_and_a_worker_that_is_killed_are_one_key_from_another_try(
    terminal: Terminal, tmp_path: Path
) -> None:
    script, mark = tmp_path / "hangs.py", f"AOTLENS_TEST_MARK={tmp_path}"
    script.write_text(HANGS, encoding="utf-8")
    terminal.run("env", mark, sys.executable, "-m", "aotlens", "tui", str(script))
    terminal.wait(lambda screen: "› run" in screen)
    terminal.keys("Escape")
    terminal.wait(lambda screen: "The trace was cancelled" in screen and "r retraces" in screen)
    terminal.keys("r")
    terminal.wait(lambda screen: "› run" in screen)
    for process in marked(mark)[1:]:
        with suppress(ProcessLookupError):  # the first takes others with it
            os.kill(process, signal.SIGKILL)
    screen = terminal.wait(lambda screen: "trace failed" in screen)
    assert "The tracing process was killed" in screen
    assert "r retraces" in screen
    terminal.keys("r")
    terminal.wait(lambda screen: "› run" in screen)
    terminal.keys("q")
    screen = terminal.wait(lambda screen: screen.strip().startswith("ended"))
    assert (screen.strip(), terminal.modes()) == ("ended 0", CLEAN)
    until(lambda: not marked(mark))


@pytest.mark.rotates
def test_a_saved_report_needs_no_torch_no_engine_and_no_code_of_the_user(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(dumps(sample_report()), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(report)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("walked []\n", "")
    assert [file.suffix for file in tmp_path.iterdir() if file != report] == [".svg"]
