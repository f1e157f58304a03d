"""Run one stage's program on copies of real inputs, or of their inner tensors.

Invariant: every stage gets copies of the same tensors with the same shared storage.  Values are named by the
user's names, those of a wrapper by its inner tensors (`out.a`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotlens.analysis.records import InputAliasInfo
from aotlens.build.programs import StageProgram
from aotlens.capture.operators import aten
from aotlens.capture.storage import index_without_repeats
from aotlens.capture.subclasses import inner_tensor_at, inner_tensors, is_wrapper
from aotlens.compiled import Compiled
from aotlens.ir.program import Program
from aotlens.ir.slots import (
    CurrentInput,
    Gradient,
    MutatedInput,
    SavedInput,
    Tangent,
    UserOutput,
)
from aotlens.runtime.graph_text import load_program
from aotlens.torch_api.modes import below_views
from aotlens.verify.tensors.clone import Cloner

AFTER = " after the call"
"""Suffix of the name of an input after its mutation."""
GENERATED = "generated code"
"""Name of the code that a backend generated for forward and backward, called like the wrapper calls it."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """The values that one stage computed on real inputs."""

    stage: str
    values: Mapping[str, Any]
    """By name: `out[0]`, `x after the call`, `gradient of x`."""


class InputCopies:
    """Copies of the flat inputs, with an alias of each that keeps its geometry at entry."""

    def __init__(self, compiled: Compiled, values: list[Any], tangents: Mapping[str, Any]) -> None:
        cloner = InputCloner()
        self._compiled, self._values = compiled, values
        self._slots = [captured_input.slot for captured_input in compiled.captured.inputs]
        bases = compiled.captured.bases
        own = [copied(cloner, value) for value in values]
        with torch.no_grad(), below_views():
            self._inputs = [value.detach() if isinstance(value, Tensor) else value for value in own]
            self._aliases_at_entry = [value.detach() if isinstance(value, Tensor) else value for value in own]
        self._tangents = tangents
        self._mutated = [info.index for info in written_inputs(compiled)]
        infos = compiled.meta.inputs
        self._storage_swapped = {info.index for info in infos if info.storage_swap and info.seen_by_autograd}
        self._resized = {info.index for info in infos if info.is_resized}
        for index, captured_input in enumerate(compiled.captured.flat_inputs):
            if captured_input.duplicate_of is not None:
                self._inputs[index] = self._inputs[captured_input.duplicate_of]
        for base in (base for base in bases if base.kind != "input"):
            like = compiled.captured.inputs[base.index].fake
            geometry = (like.shape, like.stride(), like.storage_offset())
            self._inputs.append(
                _as_stored(self._inputs[base.members[0]]).view(like.dtype).as_strided(*geometry)
            )
            self._aliases_at_entry.append(self._inputs[-1])

    def run(self, stage: StageProgram, backward: StageProgram | None) -> StageResult:
        program = stage.program
        outputs, environment = self.call(program, {})
        named_values = self._named(program, outputs)
        if backward is not None:
            gradients, _ = self.call(backward.program, environment)
            named_values |= self._named(backward.program, gradients)
        return StageResult(stage.name, named_values | self._write_back(program, outputs))

    def run_generated(self, compiled: Compiled) -> StageResult:
        """Run the forward, then the backward, as the backend compiled them."""
        code, named_values = compiled.code, dict[str, Any]()
        environment: dict[int, Any] = {}
        for graph in filter(None, (code.forward, code.backward)):
            assert graph.compile is not None  # every graph of a backend has it
            function = _unpacked(graph.program, graph.compile())
            outputs, environment = self.call(graph.program, environment, function)
            named_values |= self._named(graph.program, outputs)
            named_values |= self._write_back(graph.program, outputs)
        return StageResult(GENERATED, named_values)

    def _write_back(self, program: Program, outputs: Any) -> dict[str, Any]:
        """Write the new values into the inputs and return those of all mutated inputs."""
        with below_views():
            for out, value in zip(program.outputs, outputs, strict=True):
                if isinstance(out.slot, MutatedInput) and out.slot.index not in self._storage_swapped:
                    target = inner_tensor_at(self._written_alias(out.slot.index), out.slot.inner)
                    if out.slot.index in self._resized:
                        target.resize_(value.shape)
                    target[index_without_repeats(target)].copy_(value[index_without_repeats(target)])
        named_values: dict[str, Any] = {}
        for index in self._mutated:
            named_values |= copies_by_name(self._slots[index].name, self._written_alias(index), AFTER)
        return named_values

    def _written_alias(self, index: int) -> Any:
        """Return the alias that receives an input's new data, with its entry sizes unless it is resized."""
        return (self._inputs if index in self._resized else self._aliases_at_entry)[index]

    def tangents(self, forward: Program) -> dict[str, Any]:
        """Return random tangents for the forward's outputs, by name."""
        outputs, _ = self.call(forward, {})
        return {
            out.slot.name: _tangent_like(value) if is_number(value) else value
            for out, value in zip(forward.outputs, outputs, strict=True)
            if is_number(value) or _path(out.slot)
        }

    def call(
        self, program: Program, environment: dict[int, Any], function: Callable[..., Any] | None = None
    ) -> tuple[Any, dict[int, Any]]:
        """Return the program's outputs and all known values by node; `function` replaces its own."""
        arguments = self.arguments(program, environment)
        with below_views():
            outputs = (function or _loaded(program))(*arguments)
        known = {
            id(program_input.node): value
            for program_input, value in zip(program.inputs, arguments, strict=True)
        }
        known |= {id(out.value): value for out, value in zip(program.outputs, outputs, strict=True)}
        return outputs, known

    def arguments(self, program: Program, environment: dict[int, Any]) -> list[Any]:
        """Return the program's inputs in order; `environment` holds the saved values."""
        return [self._argument(program_input, environment) for program_input in program.inputs]

    def _argument(self, program_input: Any, environment: dict[int, Any]) -> Any:
        match program_input.slot:
            case Tangent(name=name):
                return _in_traced_layout(self._tangents[name], program_input.node.val)
            case CurrentInput(index=index):
                return self._after_forward(index)
            case SavedInput():
                return environment.get(id(program_input.node), program_input.node.constant)
            case slot:
                return inner_tensor_at(self._inputs[slot.index], _path(slot))

    def _after_forward(self, index: int) -> Any:
        """Return a flat input as it is after the forward, for a backward that reads and mutates it."""
        forward = self._compiled.parts.forward
        copies = InputCopies(self._compiled, self._values, self._tangents)
        outputs, _ = copies.call(forward, {})
        copies._write_back(forward, outputs)
        return copies._aliases_at_entry[index]

    def _named(self, program: Program, outputs: Any) -> dict[str, Any]:
        named_values: dict[str, Any] = {}
        for out, value in zip(program.outputs, outputs, strict=True):
            match out.slot:
                case UserOutput(name=name):
                    named_values |= copies_by_name(name, value)
                case Gradient(name=name) if value is not None:
                    named_values |= copies_by_name(f"gradient of {name}", value)
                case _:
                    pass
        return named_values


def written_inputs(compiled: Compiled) -> list[InputAliasInfo]:
    """Return the flat inputs whose data is mutated and whose storage is not swapped."""
    count = len(compiled.captured.flat_inputs)
    return [info for info in compiled.meta.inputs[:count] if info.mutates_data and info.storage_swap is None]


def _as_stored(value: Tensor) -> Tensor:
    """Return the tensor as stored, without lazy conjugation or negation."""
    value = value.conj() if value.is_conj() else value
    return aten._neg_view.default(value) if value.is_neg() else value


def _in_traced_layout(value: Tensor, like: Any) -> Tensor:
    """Return the gradient in the layout for which the backward was traced, as the wrapper does."""
    if any(isinstance(size, torch.SymInt) for size in (*like.shape, *like.stride())):
        return value
    return torch.empty_strided(like.shape, like.stride(), dtype=value.dtype, device=value.device).copy_(value)


def _loaded(program: Program) -> Callable[..., Any]:
    """Return the program's function, with copies of its generators."""

    def bound(value: Any) -> Any:
        return copied(Cloner(), value) if isinstance(value, torch.Generator) else value

    return load_program(program, bound)


def _unpacked(program: Program, boxed: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Adapt generated code, which takes one list that it may clear, and may overwrite saved values and
    tangents; what it writes to other inputs is a mutation."""
    overwritten = [isinstance(program_input.slot, (SavedInput, Tangent)) for program_input in program.inputs]

    def call(*inputs: Any) -> Any:
        pairs = zip(inputs, overwritten, strict=True)
        return boxed([_detached_copy(value) if is_copied else value for value, is_copied in pairs])

    return call


def copied(cloner: Cloner, value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return value.clone_state()
    return cloner.tensor(value) if isinstance(value, Tensor) else value


def copies_by_name(name: str, value: Any, when: str = "") -> dict[str, Any]:
    """Return a copy of a value by name; for a wrapper, a copy of each inner tensor."""
    if not isinstance(value, Tensor):
        return {f"{name}{when}": value}
    return {f"{'.'.join((name, *path))}{when}": _detached_copy(inner) for path, inner in inner_tensors(value)}


def _path(slot: Any) -> tuple[str, ...]:
    return getattr(slot, "inner", ()) or ()


class InputCloner(Cloner):
    """Leaves a wrapper's attributes as its subclass set them: jagged sizes belong to their offsets."""

    def _copy_attributes(self, original: Tensor, copy: Tensor) -> None:
        if not is_wrapper(original):
            super()._copy_attributes(original, copy)


def is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _tangent_like(value: Tensor) -> Tensor:
    return torch.randn_like(value, memory_format=torch.contiguous_format)


def _detached_copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
