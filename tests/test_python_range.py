"""The releases of Python: stated in several files, and each is tried with each release of torch."""

import re
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from typing import Any

import pytest

from aotlens.torch_versions import NEWEST, OLDEST
from tests.command import ROOT


@pytest.fixture(scope="module")
def matrix() -> Any:
    spec = spec_from_file_location("matrix", ROOT / "scripts" / "release" / "matrix.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


def test_every_file_states_the_same_releases(matrix: Any) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    start = "Programming Language :: Python :: "
    numbers = (line.removeprefix(start) for line in project["classifiers"] if line.startswith(start))
    assert tuple(number for number in numbers if "." in number) == matrix.PYTHONS
    assert project["requires-python"] == f">={matrix.PYTHONS[0]}"
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert re.findall(r"python: \[(.*)\]", workflow) == [
        ", ".join(f'"{number}"' for number in matrix.PYTHONS)
    ]


@pytest.mark.parametrize("first", range(5))
def test_as_many_runs_as_releases_take_every_pair(matrix: Any, first: int) -> None:
    releases = [f"2.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
    runs = [matrix.pairs(first + turn) for turn in range(len(releases))]

    taken = {(pair["python"], pair["torch"]) for pairs in runs for pair in pairs}

    assert taken == set(product(matrix.PYTHONS, releases))
    assert all(tuple(pair["python"] for pair in pairs) == matrix.PYTHONS for pairs in runs)
    assert all(len({pair["torch"] for pair in pairs}) == len(pairs) for pairs in runs)
