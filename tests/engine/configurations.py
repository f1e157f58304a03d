"""What every program of the shared list is asked, a row for each question; `test_programs.py` asks.

A row covers the programs that it has something to show of.  Its turn says which quarter of the questions it
belongs to (`tests/quarters.py`): each program is asked a quarter of them by each commit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import aotlens
from aotlens.options import CompileOptions, Compilers
from aotlens.pipeline import compile_direct
from tests.engine.checking import Compiler, EagerRun, identity
from tests.engine.judges.agreement import judge_agreement
from tests.engine.judges.dynamo import goes_through_dynamo, judge_dynamo
from tests.engine.judges.reports import judge_report
from tests.engine.judges.saved_bytes import judge_saved_bytes
from tests.engine.judges.stages import judge_stages
from tests.engine.judging import judge_beside
from tests.programs import Program

Judge = Callable[[EagerRun], None]
"""Fails or skips the test as pytest does; eager is observed already."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One question."""

    name: str
    turn: int
    """0 to 3."""
    judge: Judge
    covers: Callable[[Program], bool]
    is_costly: bool = False
    """It takes much longer than the others: four commits ask every fourth program, the next four others."""


def direct(options: CompileOptions) -> Compiler:
    """The direct frontend as a compiler."""

    def compiler(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
        return compile_direct(fn, args, {}, options).call

    return compiler


def entry_point(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """`aot_function` and `aot_module` themselves."""
    import torch

    make: Any = aotlens.aot_module if isinstance(fn, torch.nn.Module) else aotlens.aot_function
    return make(fn, aotlens.nop)


def by_hand(joint: Any, inputs: Any, **options: Any) -> Any:
    """A partition function of one's own, so that the joint graph module is made and read back."""
    return aotlens.min_cut_rematerialization_partition(joint, inputs, **options)


def beside_eager(compiler: Compiler, grow: bool = False) -> Judge:
    """Everything that a caller can see is as in eager; with other sizes too where it should grow."""

    def judge(eager: EagerRun) -> None:
        judge_beside(eager, compiler, grow=grow and "dynamic" in eager.program.tags)

    return judge


def stages(**options: Any) -> Judge:
    """Every stage of this compilation computes what the one before computes."""

    def judge(eager: EagerRun) -> None:
        judge_stages(eager, CompileOptions(backend="eager", **options))

    return judge


def decomposed_stages(eager: EagerRun) -> None:
    """The stages with Inductor's decompositions."""
    from aotlens.codegen.inductor import decompositions  # seconds, in the tests of one turn

    judge_stages(eager, CompileOptions(backend="eager", decompositions=decompositions({})))


def everything(program: Program) -> bool:
    return True


def outside_the_grid(program: Program) -> bool:
    return "grid" not in program.tags


def has(tag: str) -> Callable[[Program], bool]:
    return lambda program: tag in program.tags


def is_one_of(names: tuple[str, ...], tag: str | None = None) -> Callable[[Program], bool]:
    return lambda program: program.name in names or tag in program.tags


SIZES_THAT_STAY = (
    "distributed/linear",
    "jagged/linear",
    "aliasing_inputs/interleaved_columns_do_not_overlap",
    "aliasing_inputs/halves_of_non_leaf",
    "subclasses/halves_of_one_storage",
)
"""Whose sizes, or places on one storage, are built in although symbolic ones are asked for."""
SIZES_IN_THE_BACKWARD = (
    "mutation/view_taken_before_is_mutated",
    "mutation/copy_broadcast_with_gradient",
    "views_of_inputs/view_beside_computed",
    "views_of_intermediates/all_kinds",
)
"""Whose backward asks for sizes of what the caller changes: the default partition keeps them as numbers."""
SYMBOLIC_WITH_INDUCTOR = (
    "views_of_intermediates/transposed",
    "modules/batch_norm",
    "custom_operators/writes_to_a_view_of_an_input",
    "higher_order/scanned",
    "higher_order/mapped",
)

COMPILERS = Compilers(aotlens.nop, aotlens.nop, aotlens.nop)
_Options = partial(CompileOptions, backend="eager")
_Modules = partial(CompileOptions, backend=COMPILERS)

CONFIGURATIONS = (
    Configuration("min-cut", 0, beside_eager(direct(_Options(policy="min-cut"))), everything),
    Configuration("default", 1, beside_eager(direct(_Options(policy="default"))), outside_the_grid),
    Configuration(
        "symbolic",
        1,
        beside_eager(direct(_Options(dynamic=True)), grow=True),
        is_one_of(SIZES_THAT_STAY, "dynamic"),
    ),
    Configuration(
        "symbolic default",
        3,
        beside_eager(direct(_Options(dynamic=True, policy="default"))),
        is_one_of(SIZES_IN_THE_BACKWARD, "dynamic"),
    ),
    Configuration(
        "inductor",
        3,
        beside_eager(direct(CompileOptions(backend="inductor"))),
        has("inductor"),
        is_costly=True,
    ),
    Configuration(
        "symbolic inductor",
        0,
        beside_eager(direct(CompileOptions(backend="inductor", dynamic=True))),
        is_one_of(SYMBOLIC_WITH_INDUCTOR),
    ),
    Configuration(
        "graph modules in their convention",
        2,
        beside_eager(direct(_Modules(policy="default", keep_input_mutations=False))),
        everything,
    ),
    Configuration("partition function", 1, beside_eager(direct(_Modules(policy=by_hand))), everything),
    Configuration(
        "symbolic partition function",
        0,
        beside_eager(direct(_Modules(policy=by_hand, dynamic=True)), grow=True),
        has("dynamic"),
    ),
    Configuration("aot_function", 3, beside_eager(entry_point), everything),
    Configuration("dynamo", 2, judge_dynamo, goes_through_dynamo, is_costly=True),
    Configuration("eager beside itself", 2, beside_eager(identity, grow=True), outside_the_grid),
    Configuration("saved bytes", 0, judge_saved_bytes, everything),
    Configuration("agreement with torch", 2, judge_agreement, everything),
    Configuration("report", 1, judge_report, everything),
    Configuration("stages", 3, stages(), everything),
    Configuration("symbolic stages", 2, stages(dynamic=True), has("dynamic")),
    Configuration("decomposed stages", 0, decomposed_stages, has("inductor")),
)
