"""Every stage of a program runs on real inputs and computes what the stage before computes."""

from typing import Any

import pytest
import torch

from aotlens.build.stages import stage_row
from aotlens.compiled import Compiled
from aotlens.errors import AotlensError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.torch_api.operators import pytree
from aotlens.verify.locate.stages import compare_stages, replay_stages
from tests.engine.checking import EagerRun, prepared, quietly_compiled


def judge_stages(eager: EagerRun, options: CompileOptions) -> None:
    """Fail the test where two stages differ, or a node comes from nowhere without a reason."""
    program = eager.program
    if eager.first.failure is not None:
        pytest.skip(f"fails in eager: {eager.first.failure}")
    with program.context():
        compiled, values = compiled_and_inputs(eager, options)
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


def compiled_and_inputs(eager: EagerRun, options: CompileOptions) -> tuple[Compiled, list[Any]]:
    """The compiled program and flat inputs of its first call; skips what is refused."""
    _, given = prepared(eager.program)
    found: list[Compiled] = []

    def compiler(fn: Any, args: Any) -> Any:
        found.append(compile_direct(fn, args, {}, options))
        return found[0].call

    try:
        quietly_compiled(compiler, given)
    except AotlensError as error:
        pytest.skip(f"refused: {error}")
    module = given.fn if isinstance(given.fn, torch.nn.Module) else torch.nn.Module()
    owned = [*dict(module.named_parameters()).values(), *dict(module.named_buffers()).values()]
    return found[0], [*owned, *pytree.tree_leaves((given.args, {}))]
