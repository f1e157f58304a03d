"""Each stage of a target run on real inputs and compared with the stage before.

Invariant: every stage gets copies of the same tensors, shared memory included, and the same random numbers;
what a stage does not have (gradients before the joint program) is not compared.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotlens.analysis.records import InputAliasInfo, IntermediateBaseOf
from aotlens.capture.effects import as_it_was
from aotlens.capture.namespaces import namespace
from aotlens.capture.operators import aten
from aotlens.capture.records import Captured
from aotlens.capture.storage import once
from aotlens.capture.wrappers import is_wrapper
from aotlens.ir.outer import Outer
from aotlens.ir.program import Program
from aotlens.ir.slots import (
    CurrentInput,
    Gradient,
    IntermediateBase,
    MutatedInput,
    OutsideTensor,
    SavedInput,
    Tangent,
    UserOutput,
)
from aotlens.pipeline import Compiled
from aotlens.report.build_programs import StageProgram
from aotlens.runtime.graphs import graph_name, write_program
from aotlens.torch_api import below_views, pytree
from aotlens.verify.captured import same_random_state
from aotlens.verify.clone import Cloner
from aotlens.verify.values import close

WRAPPER = "wrapper"
GENERATED = "generated code"
"""What a backend made of the forward and the backward, called as the wrapper calls it."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one stage computed on real inputs."""

    stage: str
    values: Mapping[str, Any]
    """By what it is: `out[0]`, `x after the call`, `gradient of x`."""


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

    Nothing for a target that takes or gives tensor subclasses (its programs run on the tensors inside), for
    one that writes to a tensor from outside, needs its gradient or leaves one there, and for one whose random
    numbers come from
    a seed and an offset (before that stage others are drawn).
    """
    captured = compiled.captured
    wrapped = any(given.wrapped is not None for given in captured.inputs)
    outside = [given for given in captured.inputs if isinstance(given.slot, OutsideTensor)]
    is_state = any(
        given.requires_grad or info.is_changed
        for given, info in zip(captured.inputs, compiled.meta.inputs, strict=True)
        if given.outside is not None
    )
    functional = captured.recorder.random.functional.device is not None
    if wrapped or is_state or functional or any(is_wrapper(value) for value in captured.outputs):
        return ()
    values = [*values, *(given.outside for given in outside)]
    stages = {stage.name: stage for stage in compiled.stages()}
    results = []
    tangents: dict[str, Any] = {}
    for name, stage in stages.items():
        if stage.same_as is not None or name == "backward":
            continue
        if name == "joint":
            with same_random_state(), torch.no_grad():
                tangents = Given(compiled, values, {}).tangents(stages["forward"].program)
        given = Given(compiled, values, tangents)
        with same_random_state(), torch.no_grad():
            results.append(given.run(stage, stages.get("backward") if name == "forward" else None))
    if compiled.code.forward.compile is not None and compiled.code.interpreted is None:
        with same_random_state(), torch.no_grad():
            results.append(Given(compiled, values, tangents).run_generated(compiled))
    with same_random_state():
        results.append(_run_wrapper(compiled, values, tangents))
    return tuple(results)


def stage_tangents(compiled: Compiled, values: list[Any]) -> dict[str, Any]:
    """The gradients of results with which the backward of every stage is replayed, by name."""
    if compiled.parts.backward is None:
        return {}
    with same_random_state(), torch.no_grad():
        return Given(compiled, values, {}).tangents(compiled.parts.forward)


def compare_stages(results: tuple[StageResult, ...]) -> tuple[StageMismatch, ...]:
    """Where a stage differs from the nearest one before that has the value too."""
    known: dict[str, tuple[str, Any]] = {}
    found = []
    for result in results:
        for what, value in result.values.items():
            if what in known and not _same(value, known[what][1]):
                found.append(StageMismatch(result.stage, known[what][0], what))
            known[what] = (result.stage, value)
    return tuple(found)


def _same(found: Any, expected: Any) -> bool:
    if isinstance(found, Tensor) and isinstance(expected, Tensor):
        return found.shape == expected.shape and found.dtype == expected.dtype and close(found, expected)
    return bool(found == expected)


def load_program(program: Program) -> Any:
    """The function that the program's text defines."""
    text = write_program(program)
    bound = {
        name: _copied(Cloner(), value) if isinstance(value, torch.Generator) else value
        for name, value in text.bound.items()
    }
    namespace: dict[str, Any] = {"__name__": "aotlens_stage", **bound}
    exec(text.source, namespace)  # noqa: S102 (our own text)
    return namespace[graph_name(program)]


def _unpacked(boxed: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Generated code takes one list, which it may empty and whose memory it may write over."""
    return lambda *inputs: boxed([_kept(value) for value in inputs])


def _copied(cloner: Cloner, value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return value.clone_state()
    return cloner.tensor(value) if isinstance(value, Tensor) else value


class Given:
    """Copies of the flat inputs, with an alias of each that keeps its first sizes."""

    def __init__(self, compiled: Compiled, values: list[Any], tangents: Mapping[str, Any]) -> None:
        cloner = Cloner()
        self._compiled, self._values = compiled, values
        self._slots = [given.slot for given in compiled.captured.inputs]
        bases = compiled.captured.bases
        copied = [_copied(cloner, value) for value in values]
        with torch.no_grad(), below_views():
            self._flat = [value.detach() if isinstance(value, Tensor) else value for value in copied]
            self._before = [value.detach() if isinstance(value, Tensor) else value for value in copied]
        self._tangents = tangents
        self._changed = [info.index for info in _written(compiled)]
        infos = compiled.meta.inputs
        self._elsewhere = {info.index for info in infos if info.exchange and info.seen_by_autograd}
        self._grown = {info.index for info in infos if info.grown}
        for at, given in enumerate(compiled.captured.flat_inputs):
            if given.duplicate_of is not None:
                self._flat[at] = self._flat[given.duplicate_of]
        for base in (base for base in bases if base.kind != "input"):
            like = compiled.captured.inputs[base.index].fake
            place = (like.shape, like.stride(), like.storage_offset())
            self._flat.append(_as_stored(self._flat[base.members[0]]).view(like.dtype).as_strided(*place))
            self._before.append(self._flat[-1])

    def run(self, stage: StageProgram, backward: StageProgram | None) -> StageResult:
        program = stage.program
        outputs, environment = self.call(program, {})
        found = self._named(program, outputs)
        if backward is not None:
            gradients, _ = self.call(backward.program, environment)
            found |= self._named(backward.program, gradients)
        return StageResult(stage.name, found | self._written(program, outputs))

    def run_generated(self, compiled: Compiled) -> StageResult:
        """The forward, then the backward, as the backend made them."""
        code, found = compiled.code, dict[str, Any]()
        environment: dict[int, Any] = {}
        for graph in filter(None, (code.forward, code.backward)):
            assert graph.compile is not None  # as of every graph of a backend
            outputs, environment = self.call(graph.program, environment, _unpacked(graph.compile()))
            found |= self._named(graph.program, outputs)
            found |= self._written(graph.program, outputs)
        return StageResult(GENERATED, found)

    def _written(self, program: Program, outputs: Any) -> dict[str, Any]:
        """Puts the inputs' new values into the inputs, and tells those of all that changed."""
        with below_views():
            for out, value in zip(program.outputs, outputs, strict=True):
                if isinstance(out.slot, MutatedInput) and out.slot.index not in self._elsewhere:
                    place = self._place(out.slot.index)
                    if out.slot.index in self._grown:
                        place.resize_(value.shape)
                    place[once(place)].copy_(value[once(place)])
        return {_after(self._slots[index].name): _kept(self._place(index)) for index in self._changed}

    def _place(self, index: int) -> Any:
        """Where an input's new data is put: in its first sizes, unless it is given more memory."""
        return (self._flat if index in self._grown else self._before)[index]

    def tangents(self, forward: Program) -> dict[str, Any]:
        """Random gradients of the forward's outputs, by name."""
        outputs, _ = self.call(forward, {})
        return {
            out.slot.name: torch.randn_like(value, memory_format=torch.contiguous_format)
            for out, value in zip(forward.outputs, outputs, strict=True)
            if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
        }

    def call(
        self, program: Program, environment: dict[int, Any], function: Callable[..., Any] | None = None
    ) -> tuple[Any, dict[int, Any]]:
        """The program's results, and every value at hand afterwards by its node; `function` computes them."""
        arguments = self.arguments(program, environment)
        with below_views():
            outputs = (function or load_program(program))(*arguments)
        known = {id(given.node): value for given, value in zip(program.inputs, arguments, strict=True)}
        known |= {id(out.value): value for out, value in zip(program.outputs, outputs, strict=True)}
        return outputs, known

    def arguments(self, program: Program, environment: dict[int, Any]) -> list[Any]:
        """The program's inputs, in order; what the forward saved is in the environment."""
        return [self._argument(given, environment) for given in program.inputs]

    def _argument(self, given: Any, environment: dict[int, Any]) -> Any:
        match given.slot:
            case Tangent(name=name):
                return _laid_out(self._tangents[name], given.node.val)
            case CurrentInput(index=index):
                return self._after_forward(index)
            case SavedInput():
                return environment.get(id(given.node), given.node.constant)
            case slot:
                return self._flat[slot.index]

    def _after_forward(self, index: int) -> Any:
        """A flat input as the forward leaves it, for a backward that reads and writes to what it finds."""
        forward = self._compiled.parts.forward
        given = Given(self._compiled, self._values, self._tangents)
        outputs, _ = given.call(forward, {})
        given._written(forward, outputs)
        return given._before[index]

    def _hooked(self, index: int, gradient: Any) -> Any:
        """An input's gradient as its hooks leave it, which the wrapper registers on the caller's tensor."""
        for at, method, hook in self._compiled.captured.structure.registered:
            if at == index and method == "register_hook":
                changed = hook(gradient)
                gradient = gradient if changed is None else changed
        return gradient

    def _named(self, program: Program, outputs: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for out, value in zip(program.outputs, outputs, strict=True):
            match out.slot:
                case UserOutput(name=name) if not isinstance(out.value, Outer):
                    found[name] = _kept(value)
                case Gradient(name=name, index=index) if value is not None:
                    found[f"gradient of {name}"] = _kept(self._hooked(index, value))
                case _:
                    pass
        return found


def _written(compiled: Compiled) -> list[InputAliasInfo]:
    """The flat inputs whose memory holds new data after the call, and which keep that memory."""
    count = len(compiled.captured.flat_inputs)
    return [info for info in compiled.meta.inputs[:count] if info.mutates_data and info.exchange is None]


def _as_stored(value: Tensor) -> Tensor:
    """The tensor as it lies in memory, without the lazy conjugation or sign that it is read with."""
    value = value.conj() if value.is_conj() else value
    return aten._neg_view.default(value) if value.is_neg() else value


def _laid_out(value: Tensor, like: Any) -> Tensor:
    """The gradient in the layout that the backward was traced for, as the wrapper sees to."""
    if any(isinstance(size, torch.SymInt) for size in (*like.shape, *like.stride())):
        return value
    return torch.empty_strided(like.shape, like.stride(), dtype=value.dtype, device=value.device).copy_(value)


def _run_wrapper(compiled: Compiled, values: list[Any], tangents: Mapping[str, Any]) -> StageResult:
    """The module text called as the user's function is, and its gradients for the same tangents."""
    cloner, captured = Cloner(), compiled.captured
    flat = [_copied(cloner, value) for value in values]
    before = [value.detach() if isinstance(value, Tensor) else value for value in flat]
    mode = torch.is_grad_enabled()
    args, kwargs = _arguments(compiled, flat[: len(captured.flat_inputs)])
    with as_it_was(captured.surroundings):
        with torch.set_grad_enabled(captured.grad_enabled):
            result = compiled.module.call(*args, **kwargs)
        torch.set_grad_enabled(mode)
        result, rebound = result if captured.structure.rebound else (result, {})
        leaves = [*_result_leaves(captured, result), *_left(compiled, args, kwargs), *rebound.values()]
    places = zip(captured.output_names, captured.outputs, leaves, strict=False)
    found = {name: _kept(value) for name, known, value in places if not isinstance(known, Outer)}
    for info in _written(compiled):
        now = flat if info.grown else before
        found[_after(captured.inputs[info.index].slot.name)] = _kept(now[info.index])
    if tangents:
        found |= _wrapper_gradients(compiled, flat, leaves, (cloner, tangents))
    return StageResult(WRAPPER, found)


def _result_leaves(captured: Captured, result: Any) -> list[Any]:
    spec = captured.structure.result
    return pytree.tree_leaves(result) if spec is None else spec.flatten_up_to(result)


def _left(compiled: Compiled, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """What the call has left in containers, attributes and closures, flat."""
    structure, found = compiled.captured.structure, list[Any]()
    owned = len(compiled.captured.flat_inputs) - structure.arguments.num_leaves if structure.refills else 0
    given = {"args": args[owned:], "kwargs": kwargs}
    for refill in structure.refills:
        box = refill.box if refill.box is not None else eval(refill.place, given)  # noqa: S307 (our own text)
        content = namespace(box) if refill.keyed else list(box)
        for at, item in enumerate(refill.items):
            if item.before is None:
                found += item.spec.flatten_up_to(content[item.key if refill.keyed else at])
    return found


def _arguments(compiled: Compiled, flat: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The flat inputs as the module text takes them."""
    structure = compiled.captured.structure
    if structure.arguments is None or structure.parameters:
        return flat, {}
    owned = len(flat) - structure.arguments.num_leaves
    args, kwargs = pytree.tree_unflatten(flat[owned:], structure.arguments)
    return [*flat[:owned], *args], kwargs


def _wrapper_gradients(
    compiled: Compiled, flat: list[Any], leaves: list[Any], given: tuple[Cloner, Mapping[str, Any]]
) -> dict[str, Any]:
    captured, (cloner, tangents) = compiled.captured, given
    leaf_of = {id(made): leaf for made, leaf in cloner.leaves}
    wanted: dict[str, Tensor] = {}
    for out in compiled.joint.gradients:
        slot: Any = out.slot
        if slot.index >= len(flat):  # a synthetic base, which the caller does not have
            continue
        tensor = flat[slot.index]
        if compiled.meta.inputs[slot.index].mutates_data:
            tensor = leaf_of.get(id(tensor))
        if captured.inputs[slot.index].shares_storage_with:  # autograd may know it as a view of the other
            continue
        if out.value is not None and tensor is not None and tensor.requires_grad:
            wanted[slot.name] = tensor
    pairs = zip(compiled.joint.forward_outputs, compiled.joint.differentiable, strict=True)
    started = [out.slot for out, differentiable in pairs if differentiable]
    started = [slot for at, slot in enumerate(started) if at not in compiled.joint.failing_tangents]
    outputs = [
        (tensor, tangents[slot.name])
        for slot in started
        if (tensor := _output(compiled, slot, flat, leaves)) is not None
    ]
    if not wanted or len(outputs) != len(started):
        return {}
    gradients = torch.autograd.grad(
        [tensor for tensor, _ in outputs],
        list(wanted.values()),
        [tangent for _, tangent in outputs],
        allow_unused=True,
    )
    return {
        f"gradient of {name}": _kept(gradient)
        for name, gradient in zip(wanted, gradients, strict=True)
        if gradient is not None
    }


def _output(compiled: Compiled, slot: Any, flat: list[Any], leaves: list[Any]) -> Any:
    """The tensor that the caller has for one output of the graph; None where the caller has none."""
    match slot:
        case UserOutput(index=index):
            return leaves[index] if index < len(leaves) else None
        case MutatedInput(index=index):
            gone = index >= len(flat) or compiled.meta.inputs[index].mutates_metadata
            return None if gone else flat[index]
        case IntermediateBase(index=index):
            views = (
                leaves[info.index]
                for info in compiled.meta.outputs
                if info.base == IntermediateBaseOf(index) and info.requires_grad
            )
            return next((view._base for view in views if view._base is not None), None)
        case _:
            return None


def _after(name: str) -> str:
    return f"{name} after the call"


def _kept(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
