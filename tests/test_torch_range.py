"""The range of torch releases: stated once, and another release gives one warning."""

import tomllib

import pytest
import torch

from aotlens.torch_versions import NEWEST, OLDEST, SUPPORTED, installed, is_supported
from tests.command import ROOT, forked, python

LAST, NEXT = (f"{NEWEST[0]}.{minor}" for minor in (NEWEST[1], NEWEST[1] + 1))
TOLD = f"aotlens is tested with torch {SUPPORTED}; this is torch {{}}, with which it may fail"


def test_the_package_asks_for_the_same_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = (line for line in project["dependencies"] if line.startswith("torch"))
    assert wanted == f"torch>={OLDEST[0]}.{OLDEST[1]},<{NEXT}"
    assert f"torch {SUPPORTED};" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_version_is_known_before_torch_is_loaded() -> None:
    assert installed() == str(torch.__version__)  # with its build, which the wheel's metadata may lack


@pytest.mark.parametrize(
    ("found", "supported"),
    [
        ("2.10.2", False),
        ("2.11.0", True),
        ("2.13.0+cpu", True),
        (f"{LAST}.1a0+gitc0ffee", True),
        (f"{NEXT}.0.dev20260101", False),
        ("3.0", False),
    ],
)
def test_range(found: str, supported: bool) -> None:
    assert is_supported(found) is supported


@pytest.mark.rotates
def test_another_release_gives_one_warning_in_python() -> None:
    use = f"import torch; torch.__version__ = '{NEXT}.0'; import aotlens; aotlens.compile, aotlens.verify"
    ended = python("-c", use)
    assert ended.code == 0
    assert ended.err.count("warn(") <= 1
    assert ended.err.count(TOLD.format(f"{NEXT}.0")) == 1


def test_another_release_gives_one_line_from_a_command() -> None:
    as_another = "import aotlens.torch_versions as r; r.installed = lambda: '2.10.0'"
    words = ["verify", "examples/aliasing.py::hidden_mutation", "--backend", "eager"]
    run = f"{as_another}; from aotlens.cli.app import run_command; exit(run_command({words}))"
    ended = forked("-c", run, cwd=ROOT)
    assert ended.code == 0
    assert ended.err.splitlines() == [f"aotlens: warning: {TOLD.format('2.10.0')}"]
