"""A sample of what `python -m tests.exports` judges: exported modules where aotlens cannot be imported."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.exports.every_program import Way, ask_the_processor, written
from tests.programs import PROGRAMS, Program, tagged, untagged
from tests.quarters import QUARTERS, Quarter

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns

ROOT = Path(__file__).parents[2]
EAGER, SYMBOLIC, INDUCTOR = Way("eager", False), Way("eager", True), Way("inductor", False)
WITH_INDUCTOR = (
    "wrong_elsewhere/inputs_swapped_by_copies_with_gradients",  # written behind the graph's code
    "callables/closure_over_module",  # tensors of its own
)


EACH_QUARTER = pytest.mark.parametrize(
    "part", [pytest.param(number, marks=pytest.mark.rotates(number)) for number in range(QUARTERS)]
)


def of_part(number: int, run: Quarter, programs: Iterable[Program]) -> list[Program]:
    """The programs of a quarter that this run takes: each costs 0.1 s and more, so half at a time."""
    part = Quarter(number, "the test's own")
    return [one for one in programs if part.takes(one.name) and run.takes_costly(one.name, 2)]


def refused_or_ran(programs: list[Program], way: Way, folder: Path) -> tuple[list[str], list[str]]:
    """The programs that were exported, and a line for each that differs from eager in another process."""
    way = Way(way.backend, way.dynamic, folder)
    names = [program.name for program in programs if written(program, way)["verdict"] == "written"]
    command = [sys.executable, "-W", "ignore", "-m", "tests.exports.batch", str(folder), way.backend]
    command += ["symbolic"] if way.dynamic else []
    ended = subprocess.run(
        command, cwd=ROOT, input="\n".join(names), capture_output=True, text=True, timeout=170, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return names, [line for line in ended.stdout.splitlines() if line.startswith("differs: ")]


@EACH_QUARTER
def test_modules_of_torch_s_operators(part: int, quarter: Quarter, tmp_path: Path) -> None:
    names, wrong = refused_or_ran(of_part(part, quarter, untagged("grid")), EAGER, tmp_path)

    assert wrong == []
    assert len(names) > 60


@EACH_QUARTER
def test_modules_with_symbolic_sizes(part: int, quarter: Quarter, tmp_path: Path) -> None:
    chosen = of_part(part, quarter, tagged("dynamic"))
    chosen += [one for one in PROGRAMS if one.name == "regions/region_that_writes_to_an_operand"]
    names, wrong = refused_or_ran(chosen, SYMBOLIC, tmp_path)

    assert wrong == []
    assert len(names) > 10


@pytest.mark.rotates
def test_modules_with_inductor_s_kernels(tmp_path: Path) -> None:
    ask_the_processor()
    chosen = [program for program in PROGRAMS if program.name in WITH_INDUCTOR]
    names, wrong = refused_or_ran(chosen, INDUCTOR, tmp_path)

    assert wrong == []
    assert names == [program.name for program in chosen]
