"""Programs in the calling convention of `functorch.compile`: our policies, and a partition function."""

from typing import Any

import pytest

import aotlens
from aotlens.options import CompileOptions, Compilers
from tests.engine.judging import judge
from tests.engine.test_programs import direct, name_of
from tests.programs import PROGRAMS, Program, tagged

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns

COMPILERS = Compilers(aotlens.nop, aotlens.nop, aotlens.nop)


def by_hand(joint: Any, inputs: Any, **options: Any) -> Any:
    """A partition function of one's own, so that the joint graph module is made and read back."""
    return aotlens.min_cut_rematerialization_partition(joint, inputs, **options)


@pytest.mark.parametrize("program", PROGRAMS[::2], ids=name_of)
def test_graph_modules_in_their_convention(program: Program) -> None:
    judge(program, direct(CompileOptions(backend=COMPILERS, policy="default", keep_input_mutations=False)))


@pytest.mark.parametrize("program", PROGRAMS[1::2], ids=name_of)
def test_partition_function_of_ones_own(program: Program) -> None:
    judge(program, direct(CompileOptions(backend=COMPILERS, policy=by_hand)))


@pytest.mark.parametrize("program", tagged("dynamic")[::2], ids=name_of)
def test_partition_function_under_symbolic_sizes(program: Program) -> None:
    judge(program, direct(CompileOptions(backend=COMPILERS, policy=by_hand, dynamic=True)), grow=True)
