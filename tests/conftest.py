"""Fixtures for every test: golden files with one update flag."""

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from tests.forked import share_server
from tests.quarters import ALL, QUARTERS, Quarter, choose, named_files

for _name, _value in {
    "OMP_NUM_THREADS": "1",  # two test processes share two cores, and a forked child must not inherit a pool
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of compile processes
    "TORCHINDUCTOR_VEC_ISA_OK": "1",  # not probed: 13 s for each empty cache
    "TEXTUAL_ANIMATIONS": "none",
    "TEXTUAL_FPS": "120",  # changes are drawn after 8 ms, for which key presses wait; 250 draws more
}.items():
    os.environ.setdefault(_name, _value)
os.environ["AOTLENS_CACHE_DIR"] = ""  # nothing is stored, except by tests that name a folder
gc.disable()  # until the tests are collected: imported objects are no garbage
sys.dont_write_bytecode = False  # otherwise each process that a test starts compiles our modules again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Of a shell's background: the commands that tests start and interrupt would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

GOLDENS = Path(__file__).with_name("goldens")

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our flags: write every golden anew for review, and choose a quarter of what takes turns."""
    parser.addoption(
        "--update-goldens", action="store_true", help="write tests/goldens/ from what is computed now"
    )
    parser.addoption(
        "--quarter",
        choices=[*map(str, range(QUARTERS)), ALL],
        help="which quarter of the tests that take turns runs; default: by the number of commits",
    )
    parser.addoption(
        "--configuration",
        metavar="NAME",
        action="append",
        help="ask every program this alone; may be repeated (tests/engine/configurations.py)",
    )


_CHOSEN = pytest.StashKey[Quarter]()
_FOR_WORKERS = "aotlens"


def pytest_configure(config: pytest.Config) -> None:
    """Choose the quarter once: worker processes hear it, even if a commit comes meanwhile."""
    by_controller = getattr(config, "workerinput", {}).get(_FOR_WORKERS)
    asked = config.getoption("--quarter")
    config.stash[_CHOSEN] = choose(asked) if by_controller is None else Quarter(*by_controller)
    _choose_linker(config)
    if getattr(config.option, "numprocesses", None) and by_controller is None:
        share_server()
        config.pluginmanager.register(_Workers())


class _Workers:
    """What pytest-xdist asks; without it nobody knows these hooks."""

    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker process the quarter."""
        node.workerinput[_FOR_WORKERS] = astuple(node.config.stash[_CHOSEN])


def _choose_linker(config: pytest.Config) -> None:
    """Let g++ link kernels with gold where it is installed, in this process and all that it starts.

    The usual linker takes a third of the time to build a kernel, for the symbols of libtorch_cpu.
    """
    gold = shutil.which("ld.gold")
    if gold is None or "COMPILER_PATH" in os.environ or not _finds_its_libraries():
        return
    folder = Path(tempfile.mkdtemp(prefix="aotlens-linker-"))
    (folder / "ld").symlink_to(gold)
    os.environ["COMPILER_PATH"] = str(folder)
    config.add_cleanup(lambda: shutil.rmtree(folder))


def _finds_its_libraries() -> bool:
    """Return True if the library of g++ is where it says: one that was moved tells only its own linker."""
    words = ["g++", "-print-file-name=libstdc++.so"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return False
    return Path(answer.stdout.strip()).exists()


def pytest_report_header(config: pytest.Config) -> str:
    return str(config.stash[_CHOSEN])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `rotates` that wait for another quarter."""
    chosen = config.stash[_CHOSEN]
    named = set(named_files(config.args)) if config.getoption("--quarter") is None else set()
    every = config.getoption("--update-goldens")  # otherwise three quarters of the files would stay

    def runs(item: pytest.Item) -> bool:
        is_named = every or item.path in named
        markers = item.iter_markers("rotates")  # a function's, and that of a case which only runs nightly
        return all(chosen.runs(item.name, *marker.args, is_named=is_named) for marker in markers)

    waiting = [item for item in items if not runs(item)]
    if waiting:
        config.hook.pytest_deselected(items=waiting)
        items[:] = [item for item in items if runs(item)]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect garbage less often, and never scan torch, our modules and the tests for it."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


@pytest.fixture(scope="session")
def quarter(request: pytest.FixtureRequest) -> Quarter:
    """Return the quarter of this run."""
    return request.config.stash[_CHOSEN]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Return `golden("cli/run.txt", text)`, which compares; `--update-goldens` writes the file first."""
    update = bool(request.config.getoption("--update-goldens"))

    def check(name: str, text: str) -> None:
        path = GOLDENS / name
        actual = _portable(text)
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
        if not path.exists():
            pytest.fail(
                f"no golden file {path.name}: run `pytest --update-goldens` and read the new file",
                pytrace=False,
            )
        assert path.read_text(encoding="utf-8") == actual

    return check


def _portable(text: str) -> str:
    """Return the text without this checkout's path and trailing blanks, ending in one newline."""
    root = str(Path(__file__).parent.parent)
    lines = text.replace(root + "/", "").replace(root, ".").splitlines()
    return re.sub(r"\n*\Z", "\n", "\n".join(line.rstrip() for line in lines))
