"""A real editor: Emacs in batch mode with aotlens.el and Eglot, attached to the server.

CI does not install Emacs, which takes longer than all these tests: they run where it is.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.language_servers import REAL, ROOT, STAND_IN
from tests.report.sample import MODEL

SESSION = Path(__file__).with_name("emacs_session.el")
BATCH = ("emacs", "--batch", "--no-site-file")


@cache
def has_eglot() -> bool:
    """Eglot is part of Emacs from 29 on, and a package before."""
    if shutil.which("emacs") is None:
        return False
    asked = "(progn (require 'package) (package-initialize) (require 'eglot))"
    return subprocess.run([*BATCH, "--eval", asked], capture_output=True, check=False).returncode == 0


def emacs(file: Path, text: str, server: tuple[str, ...]) -> dict[str, list[str]]:
    """What the session prints, by its first word."""
    if not has_eglot():
        pytest.skip("Emacs with Eglot is not installed")
    environment = {
        **os.environ,
        "AOTLENS_CMD": "|".join([sys.executable, *server]),
        "AOTLENS_FILE": str(file),
        "AOTLENS_TEXT": text,
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [*BATCH, "-L", str(ROOT / "editors" / "emacs"), "-l", str(SESSION)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        label, _, rest = line.partition(" ")
        told.setdefault(label, []).append(rest)
    return told


def test_a_trace_shows_in_the_editor() -> None:
    told = emacs(MODEL, "cache.mul_", STAND_IN)
    assert told["TRACED"] == ["Block score"]
    assert sorted(told["DIAGNOSTIC"])[0].startswith("21 aotlens [AL101]: `cache` is changed in place")
    assert told["HOVER"][0].startswith("cache.mul_(0.9) · f32[32, 16]")
    assert "Return the new value instead; " in told["ACTIONS"][0]
    assert told["GRAPH"][0].startswith("def forward(")
    assert told["MODES"] == ["444"]
    assert "wrapper" in told["PARTS"][0].split()


def test_an_example_through_the_real_worker() -> None:
    told = emacs(ROOT / "examples" / "attention.py", "weights.sum", REAL)
    assert told["TRACED"] == ["attend"]
    assert "`seen` is mutated in place" in told["DIAGNOSTIC"][0]
    assert told["HOVER"][0].startswith("weights.sum(")
    assert told["GRAPH"][0].startswith("def forward_graph(")
