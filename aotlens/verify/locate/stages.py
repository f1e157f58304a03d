"""Each stage of a target run on real inputs and compared with the stage before.

Invariant: every stage gets copies of the same tensors, shared memory included, and the same random numbers;
what a stage does not have (gradients before the joint program) is not compared.
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
    """A value that two neighbouring stages do not agree on."""

    stage: str
    parent: str
    what: str

    def __str__(self) -> str:
        return f"`{self.what}` of the stage `{self.stage}` is not what `{self.parent}` computes"


def replay_stages(compiled: Compiled, values: list[Any]) -> tuple[StageResult, ...]:
    """Run every stage's program on copies of these flat inputs; the wrapper's module text comes last.

    Nothing for a target that writes to a tensor from outside, needs its gradient or leaves one there, for one
    that hooks an argument which is a wrapper, and for one whose random numbers come from a seed and an offset
    (before that stage others are drawn).
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
    functional = captured.recorder.random.functional.device is not None
    hooked = any(
        captured.inputs[index].wrapped is not None for index, _, _ in captured.structure.registered_hooks
    )
    if is_state or functional or hooked:
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
    """The gradients of results with which the backward of every stage is replayed, by name."""
    if compiled.parts.backward is None:
        return {}
    with same_random_state(), torch.no_grad():
        return InputCopies(compiled, values, {}).tangents(compiled.parts.forward)


def compare_stages(results: tuple[StageResult, ...]) -> tuple[StageMismatch, ...]:
    """Where a stage differs from the nearest one before that has the value too."""
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
