"""The direct frontend: run the user's Python function unchanged on fake tensors."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from aotlens.capture.free_variables.captured_tensors import (
    bound_to_fakes,
    captured_tensor_slots,
    captured_tensors,
)
from aotlens.capture.free_variables.changes import without_new_cache_entries
from aotlens.capture.free_variables.containers import flatten_with_path, output_with_updates, watch_containers
from aotlens.capture.free_variables.namespaces import MISSING, bound_by_hooks
from aotlens.capture.free_variables.reachable import reachable_state
from aotlens.capture.free_variables.side_effects import SideEffectChanges
from aotlens.capture.free_variables.state import ReachableState
from aotlens.capture.function_fixes import without_outer_optimizer_steps
from aotlens.capture.inputs.module_tensors import call_with_tensors, module_tensors
from aotlens.capture.modes import Settings
from aotlens.capture.provenance.dynamo_nodes import located_call
from aotlens.capture.provenance.frames import calling_frames, is_torch_file
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, CapturedTensor, FlatCall, OpenInput, Subject
from aotlens.capture.run import capture_run
from aotlens.capture.symbols.int_inputs import can_be_symbol
from aotlens.ir.slots import Buffer, FlatInput, Parameter, SymIntInput, UserInput
from aotlens.model.report import Span
from aotlens.options import SideEffects
from aotlens.torch_api.dynamo.state import is_static_address
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported


def capture_direct(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: Settings,
    name: str | None = None,
) -> tuple[Captured, Recorder]:
    """Record `function(*args, **kwargs)`; a module's parameters and buffers precede the arguments.

    Returns what was captured, and the recording, to which later stages add nodes.
    """
    subject = describe_subject(function, name)
    owned = module_tensors(function)
    paths, spec = flatten_with_path((args, kwargs))
    signature = _signature(function)
    slots = [*owned_slots(owned), *_argument_slots(paths, signature, len(owned), settings)]
    values = [*owned.values(), *(value for _, value in paths)]
    reachable = reachable_state(function, values)
    _reject_lazy_modules(subject, owned, reachable)
    free_tensors = _free_tensors(reachable, values, settings.side_effects)
    changes: list[SideEffectChanges] = []
    slots += captured_tensor_slots(free_tensors, len(values))
    argument_count = len(values)
    call = _UserCall(function, subject, signature, tuple(owned), spec, settings.side_effects)

    def run(recorder: Recorder, inputs: tuple[OpenInput, ...]) -> Any:
        clean = without_new_cache_entries(recorder.nodes, reachable.caches)
        fakes = inputs[argument_count:]
        try:
            with (
                clean,
                bound_to_fakes(recorder, free_tensors, fakes),
                without_outer_optimizer_steps(recorder),
            ):
                result = call.run(recorder, inputs[:argument_count])
        finally:
            changes.append(SideEffectChanges(reachable, subject, settings.side_effects, inputs))
        return changes[0].with_updates(result)

    values += [free_tensor.tensor for free_tensor in free_tensors]
    captured, builder = capture_run(
        subject, FlatCall(values, tuple(slots), spec, run, free_tensors), settings
    )
    return _with_python_state(captured, changes[0], settings, _parameters(signature, spec)), builder


@dataclass(frozen=True, slots=True)
class _UserCall:
    """The one call of the user's function."""

    function: Callable[..., Any]
    subject: Subject
    signature: inspect.Signature | None
    tensor_names: tuple[str, ...]
    """The parameters and buffers, if the function is a module."""
    spec: Any
    """The pytree structure of its arguments."""
    side_effects: SideEffects

    def run(self, recorder: Recorder, inputs: tuple[OpenInput, ...]) -> Any:
        """Call the function with the inputs; return its output, with what it changed in containers."""
        flat = [captured_input.argument for captured_input in inputs]
        args, kwargs = pytree.tree_unflatten(flat[len(self.tensor_names) :], self.spec)
        watches = self.side_effects is not SideEffects.TRACED
        containers = watch_containers(args, kwargs) if watches else ()
        rebound: tuple[tuple[str, Any], ...] = ()
        if isinstance(self.function, torch.nn.Module):
            before = dict(zip(self.tensor_names, flat, strict=False))
            tensors = dict(before)
            located = located_call(self.function, recorder)
            with bound_by_hooks(self.function) as attributes:
                result = call_with_tensors(self.function, tensors, args, kwargs, located)
            rebound = _rebound(self.subject, tensors, before, attributes, self.side_effects)
        else:
            result = self.function(*args, **kwargs)
        named = partial(argument_name, signature=self.signature)
        return output_with_updates(result, containers, rebound, named, self.subject.span)


def _with_python_state(
    captured: Captured, changes: SideEffectChanges, settings: Settings, parameters: tuple[str, ...]
) -> Captured:
    """With the names of the function's parameters, and what it did to Python state."""
    return replace(
        captured,
        structure=replace(captured.structure, parameters=parameters),
        reachable=changes.remaining_state(),
        side_effects=settings.side_effects,
        single_use_reason=changes.single_use_reason,
    )


def _argument_slots(
    paths: list[Any], signature: inspect.Signature | None, first: int, settings: Settings
) -> list[FlatInput]:
    return [
        _slot(argument_name(path, signature), first + index, value, settings)
        for index, (path, value) in enumerate(paths)
    ]


def _free_tensors(
    reachable: ReachableState, values: list[Any], effects: SideEffects
) -> tuple[CapturedTensor, ...]:
    """Return the free tensors to replace by fakes; an export stores them, and foreign fakes are rejected."""
    if effects is SideEffects.TRACED:
        return ()
    free_tensors = captured_tensors(reachable, values)
    if effects is SideEffects.REPLAYED:
        return free_tensors
    return tuple(free_tensor for free_tensor in free_tensors if type(free_tensor.tensor) is not FakeTensor)


def _slot(name: str, index: int, value: Any, settings: Settings) -> FlatInput:
    if isinstance(value, torch.SymInt) or (settings.symbolic_numbers and can_be_symbol(value)):
        return SymIntInput(name, index)
    return UserInput(name, index, is_static=is_static_address(value))


def owned_slots(owned: dict[str, Any]) -> list[FlatInput]:
    return [
        Parameter(fqn, index, fqn) if isinstance(tensor, torch.nn.Parameter) else Buffer(fqn, index, fqn)
        for index, (fqn, tensor) in enumerate(owned.items())
    ]


def describe_subject(function: Any, name: str | None) -> Subject:
    """Return the function's names and the source location of its `def`."""
    code_owner = function.forward if isinstance(function, torch.nn.Module) else function
    owner = type(function) if isinstance(function, torch.nn.Module) else function
    qualname = getattr(owner, "__qualname__", type(function).__qualname__)
    code = getattr(inspect.unwrap(code_owner), "__code__", None)
    span = None
    if code is not None and is_torch_file(code.co_filename):
        frames = calling_frames()
        return Subject(
            function, name or qualname.rsplit(".", 1)[-1], qualname, "direct", frames.innermost, frames
        )
    if code is not None:
        span = Span(code.co_filename, code.co_firstlineno, 0, code.co_firstlineno, 0)
    return Subject(function, name or qualname.rsplit(".", 1)[-1], qualname, "direct", span)


def _signature(function: Any) -> inspect.Signature | None:
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):
        return None


def argument_name(path: tuple[Any, ...], signature: inspect.Signature | None) -> str:
    """Return the user's name for one leaf of `(args, kwargs)`: `x`, `batch["ids"]`, `rest[1]`."""
    which, position = path[0].idx, path[1]
    if which == 1:
        return f"{position.key}{pytree.keystr(path[2:])}"
    names = list(signature.parameters.values()) if signature is not None else []
    for index, parameter in enumerate(names):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL and position.idx >= index:
            return f"{parameter.name}[{position.idx - index}]{pytree.keystr(path[2:])}"
        if index == position.idx:
            return f"{parameter.name}{pytree.keystr(path[2:])}"
    return f"arg{position.idx}{pytree.keystr(path[2:])}"


def _reject_lazy_modules(subject: Subject, owned: dict[str, Any], reachable: ReachableState) -> None:
    """Reject a lazy layer: it would create its parameters from tensors of the recording."""
    known = (*owned.items(), *((binding.path, binding.value) for binding in reachable.bindings))
    for name, value in known:
        if is_lazy(value):
            raise unsupported("lazy-module", subject.span, module=name)


def _rebound(
    subject: Subject,
    tensors: dict[str, Any],
    before: dict[str, Any],
    attributes: Iterable[tuple[str, Any]],
    effects: SideEffects,
) -> tuple[tuple[str, Any], ...]:
    """Return the parameters and buffers that the module rebound, and attributes that torch's hooks bound."""
    rebound = tuple((fqn, now) for fqn, now in tensors.items() if now is not before.get(fqn, MISSING))
    for fqn, now in rebound:
        if effects is SideEffects.TRACED or not isinstance(now, torch.Tensor):
            raise unsupported("module-rebinds-tensor", subject.span, name=fqn)
    return () if effects is SideEffects.TRACED else (*rebound, *attributes)


def _parameters(signature: inspect.Signature | None, spec: Any) -> tuple[str, ...]:
    """Return the positional parameters' names if every argument is one leaf; empty otherwise."""
    args, kwargs = spec.children()
    if (
        signature is None
        or kwargs.num_leaves
        or kwargs.num_children
        or not all(arg.is_leaf() for arg in args.children())
    ):
        return ()
    parameters = list(signature.parameters.values())
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    if len(parameters) != args.num_children or any(parameter.kind not in kinds for parameter in parameters):
        return ()
    return tuple(parameter.name for parameter in parameters)
