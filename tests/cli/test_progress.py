"""Progress on a terminal never mixes with what a script prints, and elsewhere there is none."""

from pathlib import Path

import pytest

from tests.cli.pseudo_terminal import Screen, on_terminal
from tests.command import aotlens, forked

WATCHED = """\
import os, sys, time, warnings
import aotlens.cli.status_line as status_line

status_line.DELAY_S = 0.0
drawn = []

class Watched(status_line.StatusLine):
    def _draw(self, text):
        super()._draw(text)
        drawn.append(text)

    def shows(self, start, seconds=0):
        before = len(drawn)
        while not any(
            text.startswith(start) and int(text.split(" ")[-2]) >= seconds for text in drawn[before:]
        ):
            time.sleep(0.01)
"""
"""A status line of which a script can wait until it is on the screen, however slow the machine is."""

LINE = """\
print("before")
with Watched(sys.stderr) as line:
    line.show("first")
    line.shows("first")
    print("meanwhile", flush=True)
    line.shows("first")
    sys.stderr.write("a warning\\n")
    line.show("second")
    line.shows("second")
    with warnings.catch_warnings(action="ignore"):  # a fork of a process with threads, from Python 3.12 on
        child = os.fork()
    if child == 0:
        print("from a child", flush=True)
        os._exit(0)
    os.wait()
    line.hide()
    print("half a line ", end="", flush=True)
    status_line.DELAY_S = 3600.0
    line.show("too short to be shown")
    line.hide()
    status_line.DELAY_S = 0.0
    line.show("third")
    line.shows("third")
    line.hide()
    print("and its end")
    line.show("until the end")
    line.shows("until the end")
print("after", "write" in vars(sys.stdout))
"""


def test_the_line_is_gone_before_anything_is_printed() -> None:
    screen = on_terminal("-c", WATCHED + LINE)
    assert screen.printed == (
        "before\nmeanwhile\na warning\nfrom a child\nhalf a line and its end\nafter False\n"
    )
    # A child writes past us, in one part or two: where the line is drawn again between them, both are listed.
    assert "".join(screen.overwritten) in ("", "from a child\r\n", "\r\n")
    shown = dict.fromkeys(text.split(" · ")[0] for text in screen.status)
    assert list(shown) == ["first", "second", "third", "until the end"]


@pytest.mark.rotates
def test_seconds_count_from_the_first_text() -> None:
    screen = on_terminal(
        "-c",
        WATCHED
        + "with Watched(sys.stderr) as line:\n"
        + "    line.show('a')\n"
        + "    line.shows('a', seconds=1)\n"
        + "    line.show('b')\n"
        + "    line.shows('b')\n",
    )
    shown = [text.split(" · ") for text in screen.status]
    assert (shown[0][0], shown[-1][0]) == ("a", "b")
    seconds = [int(passed.removesuffix(" s")) for _, passed in shown]
    assert seconds == sorted(seconds), "b began to count anew"


SLOW = """\
import sys
import torch

def scale(x):
    for step in range(200):
        x = torch.relu(x + step)
    return x

print("part of a line, ", end="", flush=True)
compiled = torch.compile(scale, backend="inductor")
print(compiled(torch.ones(3)).shape)
print("the end", file=sys.stderr)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "s.py").write_text(SLOW)
    return tmp_path / "s.py"


AT_ONCE = (
    "import sys, aotlens.cli.status_line as line; line.DELAY_S = 0.0;"
    "from aotlens.cli import main; sys.exit(main(sys.argv[1:]))"
)
"""The command line, which shows progress from the start: how long anything takes here is not known."""


@pytest.mark.rotates
def test_run_shows_compilations_and_leaves_the_scripts_output_alone(script: Path) -> None:
    screen = on_terminal("-c", AT_ONCE, "run", "--backend", "eager", "--no-cache", script)
    assert screen.code == 0
    assert screen.overwritten == []
    printed = screen.printed.splitlines()
    assert printed[:2] == ["part of a line, torch.Size([3])", "the end"]
    assert "aotlens: 1 function" in printed[2]
    stages = {tuple(text.split(" · ")[:-1]) for text in screen.status}
    assert {name for name, *_ in stages} & {"aotlens: compiling", "aotlens: scale"}, screen.status


EXAMPLE = """\
import torch

# aotlens: example f32[8] grad
def layers(x):
    for step in range(200):
        x = torch.relu(x + step)
    return x

print("loaded")
"""


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("words", "start"),
    [
        (("inspect",), "aotlens: tracing s.py"),
        (("export",), "aotlens: tracing s.py"),
        (("check", "--fresh"), "aotlens: tracing 1 file"),
        (("verify", "--backend", "eager"), "aotlens: "),
    ],
    ids=["inspect", "export", "check", "verify"],
)
def test_other_commands(words: tuple[str, ...], start: str, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(EXAMPLE)
    screen = on_terminal("-c", AT_ONCE, *words, "s.py", cwd=tmp_path)
    assert (screen.code, screen.overwritten) == (0, [])
    assert screen.status, "nothing was shown"
    assert all(text.startswith(start) for text in screen.status), screen.status


@pytest.mark.rotates
def test_no_terminal_no_progress(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(EXAMPLE)
    ended = aotlens("inspect", "s.py", cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "loaded\n")
    dumb = "import os; os.environ['TERM'] = 'dumb'\nfrom aotlens.cli.progress import waiting\n"
    is_drawn = "any(thread.name == 'aotlens status line' for thread in threading.enumerate())"
    quiet = f"{dumb}import threading\nwith waiting('x') as show:\n    show('y'); assert not {is_drawn}\n"
    assert forked("-c", quiet).err == ""
    assert on_terminal("-c", quiet) == Screen(0, "")
