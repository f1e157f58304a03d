"""Progress on a terminal never mixes with what a script prints, and elsewhere there is none."""

from pathlib import Path

import pytest

from tests.cli.command import aotlens, python
from tests.cli.pseudo_terminal import Screen, on_terminal

LINE = """\
import os, sys, threading, time
from aotlens.cli.status_line import StatusLine

print("before")
with StatusLine(sys.stderr) as line:
    line.show("first")
    time.sleep(0.8)
    print("meanwhile, from another thread", flush=True)
    time.sleep(0.4)
    sys.stderr.write("a warning\\n")
    line.show("second")
    time.sleep(0.4)
    if os.fork() == 0:
        print("from a child", flush=True)
        os._exit(0)
    os.wait()
    line.hide()
    print("half a line ", end="", flush=True)
    line.show("too short to be shown")
    line.hide()
    line.show("third")
    time.sleep(0.8)
    line.hide()
    print("and its end")
    line.show("until the end")
    time.sleep(0.8)
print("after", "write" in vars(sys.stdout))
"""


def test_the_line_is_gone_before_anything_is_printed() -> None:
    screen = on_terminal("-c", LINE)
    assert screen.printed == (
        "before\nmeanwhile, from another thread\na warning\nfrom a child\nhalf a line and its end\n"
        "after False\n"
    )
    # A child writes past us, in one part or two: where the line is drawn again between them, both are listed.
    assert "".join(screen.overwritten) in ("", "from a child\r\n", "\r\n")
    shown = dict.fromkeys(text.split(" · ")[0] for text in screen.status)
    assert list(shown) == ["first", "second", "third", "until the end"]


def test_seconds_count_from_the_first_text() -> None:
    screen = on_terminal(
        "-c",
        "import sys, time\n"
        "from aotlens.cli.status_line import StatusLine\n"
        "with StatusLine(sys.stderr) as line:\n"
        "    for text in 'ab':\n"
        "        line.show(text)\n"
        "        time.sleep(1.3)\n",
    )
    shown = [text.split(" · ") for text in screen.status]
    assert (shown[0][0], shown[-1][0]) == ("a", "b")
    seconds = [int(passed.removesuffix(" s")) for _, passed in shown]
    assert seconds == sorted(seconds)
    assert seconds[-1] >= 2, "b began to count anew"


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


def test_no_terminal_no_progress(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(EXAMPLE)
    ended = aotlens("inspect", "s.py", cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "loaded\n")
    dumb = "import os; os.environ['TERM'] = 'dumb'\nfrom aotlens.cli.progress import waiting\n"
    quiet = f"{dumb}import time\nwith waiting('x') as show:\n    show('y'); time.sleep(1)\n"
    assert python("-c", quiet).err == ""
    assert on_terminal("-c", quiet) == Screen(0, "")
