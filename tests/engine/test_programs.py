"""Every program through the engine, compared with eager in everything that a caller can see."""

from collections.abc import Callable
from typing import Any

import pytest

from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.engine.checking import Compiler
from tests.engine.judging import judge
from tests.programs import PROGRAMS, Program, tagged, untagged

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns


def direct(options: CompileOptions) -> Compiler:
    """The direct frontend as a compiler."""

    def compiler(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
        return compile_direct(fn, args, {}, options).call

    return compiler


def name_of(program: Program) -> str:
    return program.name


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_min_cut_partition(program: Program) -> None:
    judge(program, direct(CompileOptions(backend="eager", policy="min-cut")))


TRAINING_FILES = ("autograd", "functions", "modules", "randomness")


def chosen_for_default_partition() -> list[Program]:
    """The policies part only in training; of what the wrapper does around it, every third is enough."""
    rest = [program for program in untagged("grid") if not program.name.startswith(TRAINING_FILES)]
    return [program for program in untagged("grid") if program.name.startswith(TRAINING_FILES)] + rest[::3]


@pytest.mark.parametrize("program", chosen_for_default_partition(), ids=name_of)
def test_default_partition(program: Program) -> None:
    judge(program, direct(CompileOptions(backend="eager", policy="default")))


@pytest.mark.parametrize("program", tagged("dynamic"), ids=name_of)
def test_symbolic_sizes(program: Program) -> None:
    judge(program, direct(CompileOptions(backend="eager", dynamic=True)), grow=True)


SIZES_THAT_STAY = (
    "distributed/linear",
    "jagged/linear",
    "aliasing_inputs/interleaved_columns_do_not_overlap",
    "aliasing_inputs/halves_of_non_leaf",
    "subclasses/halves_of_one_storage",
)
"""Whose sizes, or places on one storage, are built in although symbolic ones are asked for."""


@pytest.mark.parametrize("name", SIZES_THAT_STAY)
def test_symbolic_sizes_that_stay(name: str) -> None:
    program = next(program for program in PROGRAMS if program.name == name)
    judge(program, direct(CompileOptions(backend="eager", dynamic=True)))


SIZES_IN_THE_BACKWARD = (
    "mutation/view_taken_before_is_mutated",
    "mutation/copy_broadcast_with_gradient",
    "views_of_inputs/view_beside_computed",
    "views_of_intermediates/all_kinds",
)
"""Whose backward asks for sizes of what the caller changes: the default partition keeps them as numbers."""


def symbolic_with_default_partition() -> list[Program]:
    asked = [program for program in PROGRAMS if program.name in SIZES_IN_THE_BACKWARD]
    return [*tagged("dynamic")[::3], *asked]


@pytest.mark.parametrize("program", symbolic_with_default_partition(), ids=name_of)
def test_symbolic_sizes_default_partition(program: Program) -> None:
    judge(program, direct(CompileOptions(backend="eager", dynamic=True, policy="default")))


@pytest.mark.parametrize("program", tagged("inductor"), ids=name_of)
def test_inductor_backend(program: Program) -> None:
    judge(program, direct(CompileOptions(backend="inductor")))


@pytest.mark.parametrize(
    "name",
    [
        "views_of_intermediates/transposed",
        "modules/batch_norm",
        "custom_operators/writes_to_a_view_of_an_input",
        "higher_order/scanned",
        "higher_order/mapped",
    ],
)
def test_inductor_backend_with_symbolic_sizes(name: str) -> None:
    program = next(program for program in PROGRAMS if program.name == name)
    judge(program, direct(CompileOptions(backend="inductor", dynamic=True)))
