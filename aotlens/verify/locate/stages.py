"""Run each stage of a target on real inputs and compare it with the stage before.

Invariant: every stage gets copies of the same tensors with the same shared storage, and the same random
numbers.  Values that a stage does not have (gradients before the joint program) are not compared.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotlens.compiled import Compiled
from aotlens.ir.slots import FreeTensor
from aotlens.rng_state import same_random_state
from aotlens.verify.locate.stage_call import run_module
from aotlens.verify.locate.stage_inputs import InputCopies, StageResult
from aotlens.verify.tensors.values import close


@dataclass(frozen=True, slots=True)
class StageMismatch:
    """A value on which two neighbouring stages disagree."""

    stage: str
    parent: str
    what: str

    def __str__(self) -> str:
        return f"`{self.what}` of the stage `{self.stage}` is not what `{self.parent}` computes"


def replay_stages(compiled: Compiled, values: list[Any]) -> tuple[StageResult, ...]:
    """Run every stage's program on copies of these flat inputs; the wrapper's module text comes last.

    Returns nothing for a target that mutates a free tensor, needs its gradient or writes it; for one that
    registers a hook on a wrapper subclass; and for one whose random numbers come from a seed and an offset,
    because the stages before use other numbers.
    """
    captured = compiled.captured
    outside = [
        captured_input for captured_input in captured.inputs if isinstance(captured_input.slot, FreeTensor)
    ]
    is_state = any(
        captured_input.requires_grad or info.is_mutated
        for captured_input, info in zip(captured.inputs, compiled.meta.inputs, strict=True)
        if captured_input.free_tensor is not None
    )
    functional = compiled.joint.recorded.random_device is not None
    if is_state or functional:
        return ()
    values = [*values, *(captured_input.free_tensor for captured_input in outside)]
    stages = {stage.name: stage for stage in compiled.stages()}
    results = []
    tangents: dict[str, Any] = {}
    for name, stage in stages.items():
        if stage.same_as is not None or name == "backward":
            continue
        if name == "joint":
            with same_random_state(), torch.no_grad():
                tangents = InputCopies(compiled, values, {}).tangents(stages["forward"].program)
        captured_input = InputCopies(compiled, values, tangents)
        with same_random_state(), torch.no_grad():
            results.append(captured_input.run(stage, stages.get("backward") if name == "forward" else None))
    if compiled.code.forward.compile is not None and compiled.code.interpreted is None:
        with same_random_state(), torch.no_grad():
            results.append(InputCopies(compiled, values, tangents).run_generated(compiled))
    with same_random_state():
        results.append(run_module(compiled, values, tangents))
    return tuple(results)


def stage_tangents(compiled: Compiled, values: list[Any]) -> dict[str, Any]:
    """Return, by name, the tangents with which the backward of every stage is replayed."""
    if compiled.parts.backward is None:
        return {}
    with same_random_state(), torch.no_grad():
        return InputCopies(compiled, values, {}).tangents(compiled.parts.forward)


def compare_stages(results: tuple[StageResult, ...]) -> tuple[StageMismatch, ...]:
    """Return where a stage differs from the nearest earlier stage that has the value."""
    known: dict[str, tuple[str, Any]] = {}
    mismatches = []
    for result in results:
        for what, value in result.values.items():
            if what in known and not _same(value, known[what][1]):
                mismatches.append(StageMismatch(result.stage, known[what][0], what))
            known[what] = (result.stage, value)
    return tuple(mismatches)


def _same(actual: Any, expected: Any) -> bool:
    if isinstance(actual, Tensor) and isinstance(expected, Tensor):
        return actual.shape == expected.shape and actual.dtype == expected.dtype and close(actual, expected)
    return bool(actual == expected)
