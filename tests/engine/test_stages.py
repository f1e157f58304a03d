"""Every stage of every program runs on real inputs and computes what the stage before computes."""

import os
from typing import Any

import pytest
import torch

from aotlens.errors import AotlensError
from aotlens.options import CompileOptions
from aotlens.pipeline import Compiled, compile_direct
from aotlens.report.build_stages import stage_row
from aotlens.torch_api import pytree
from aotlens.verify.first_call import observe_alone
from aotlens.verify.observe import Probe
from aotlens.verify.stages import compare_stages, replay_stages
from tests.engine.checking import prepared, quietly_compiled
from tests.programs import PROGRAMS, Program, tagged

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns

EVERY = 1 if os.environ.get("AOTLENS_ALL_STAGES") else 5
"""Which part of the list runs; all of it with AOTLENS_ALL_STAGES=1."""


RESIZED = frozenset(
    {
        "metadata/resize_to_more_then_filled",
        "metadata/out_argument_without_memory",
        "exchanges/set_then_mutated_with_gradient",
        "exchanges/set_to_storage_of_other",
    }
)
"""Inputs that get another storage: the caller's tensor cannot be compared through an alias made before."""


def compiled_and_inputs(program: Program, options: CompileOptions) -> tuple[Compiled, list[Any]] | None:
    """The compiled program and flat inputs of its first call; None for what fails in eager or is refused."""
    eager, given = prepared(program)
    if observe_alone(eager, Probe(backward=False, writes=False)).failure is not None:
        return None
    found: list[Compiled] = []

    def compiler(fn: Any, args: Any) -> Any:
        found.append(compile_direct(fn, args, {}, options))
        return found[0].call

    try:
        quietly_compiled(compiler, given)
    except AotlensError:
        return None
    module = given.fn if isinstance(given.fn, torch.nn.Module) else torch.nn.Module()
    owned = [*dict(module.named_parameters()).values(), *dict(module.named_buffers()).values()]
    return found[0], [*owned, *pytree.tree_leaves((given.args, {}))]


def judge_stages(program: Program, options: CompileOptions) -> None:
    if program.name in RESIZED:
        return
    with program.context():
        both = compiled_and_inputs(program, options)
        if both is None:
            return
        compiled, values = both
        mismatches = compare_stages(replay_stages(compiled, values))
    assert not mismatches, "\n".join([program.name, *map(str, mismatches)])
    strays = [
        f"{stage.name}: `{node.name}` has neither an ancestor nor a reason"
        for stage in compiled.stages()
        if stage.parent is not None
        for node in stage_row(stage).nodes
        if not node.from_ and not node.reason
    ]
    assert not strays, "\n".join([program.name, *strays])


@pytest.mark.parametrize("program", PROGRAMS[::EVERY], ids=lambda program: program.name)
def test_each_stage_equals_the_one_before(program: Program) -> None:
    judge_stages(program, CompileOptions(backend="eager"))


@pytest.mark.parametrize("program", tagged("dynamic")[::EVERY], ids=lambda program: program.name)
def test_with_symbolic_sizes(program: Program) -> None:
    judge_stages(program, CompileOptions(backend="eager", dynamic=True))


@pytest.mark.parametrize("program", tagged("inductor")[::EVERY], ids=lambda program: program.name)
def test_with_decompositions(program: Program) -> None:
    from aotlens.codegen.inductor import decompositions

    judge_stages(program, CompileOptions(backend="eager", decompositions=decompositions({})))
