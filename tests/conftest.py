"""What every test may ask for: golden files with one update flag."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

for _name, _value in {
    "OMP_NUM_THREADS": "1",  # two test processes share two cores, and a forked child must not inherit a pool
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of compile processes beside them
    "TEXTUAL_ANIMATIONS": "none",
}.items():
    os.environ.setdefault(_name, _value)
os.environ["AOTLENS_CACHE_DIR"] = ""  # nothing is kept, but by tests that name a folder
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Of a shell's background: the commands that tests start and interrupt would be deaf to it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

GOLDENS = Path(__file__).with_name("goldens")

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """One flag writes every golden anew; the difference is read in review."""
    parser.addoption(
        "--update-goldens", action="store_true", help="write tests/goldens/ from what is computed now"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden("cli/run.txt", text)`: the text equals that file; `--update-goldens` writes it first."""
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
    """The text without this checkout's path and without blanks at line ends, ending in one newline."""
    root = str(Path(__file__).parent.parent)
    lines = text.replace(root + "/", "").replace(root, ".").splitlines()
    return re.sub(r"\n*\Z", "\n", "\n".join(line.rstrip() for line in lines))
