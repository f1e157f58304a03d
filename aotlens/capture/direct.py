"""The direct frontend: run the user's Python function unchanged on fake tensors."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from aotlens.capture.free_variables.captured_tensors import (
    bound_to_fakes,
    captured_tensors,
)
from aotlens.capture.free_variables.changes import undone_changes, without_new_cache_entries
from aotlens.capture.free_variables.reachable import reachable_state
from aotlens.capture.free_variables.side_effects import SideEffectReplay
from aotlens.capture.free_variables.state import Contents, OutputWithUpdates, ReachableState
from aotlens.capture.free_variables.stores import MISSING, containers_in, flatten_with_path, shallow_copy
from aotlens.capture.function_fixes import without_outer_optimizer_steps
from aotlens.capture.inputs.module_tensors import call_with_tensors, is_owned, module_tensors
from aotlens.capture.modes import Settings
from aotlens.capture.provenance.dynamo_nodes import located_call
from aotlens.capture.provenance.frames import calling_frames, is_torch_file
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, CapturedTensor, FlatCall, OpenInput, Subject
from aotlens.capture.run import capture_run
from aotlens.capture.symbols.numbers import can_be_symbol
from aotlens.ir.origin import NO_ORIGIN
from aotlens.ir.slots import Buffer, FlatInput, FreeTensor, Parameter, SymIntInput, UserInput
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
    effects = settings.side_effects
    subject = _describe_subject(function, name)
    owned = module_tensors(function)
    paths, spec = flatten_with_path((args, kwargs))
    signature = _signature(function)
    values = [*owned.values(), *(value for _, value in paths)]
    reachable = reachable_state(function, values)
    _reject_lazy_modules(subject, owned, reachable)
    free_tensors = _free_tensors(reachable, values, effects)
    replay = SideEffectReplay(reachable, subject, effects)

    def run(recorder: Recorder, inputs: tuple[OpenInput, ...]) -> OutputWithUpdates:
        flat = [captured_input.argument for captured_input in inputs]
        tensors = dict(zip(owned, flat, strict=False))
        fake_args, fake_kwargs = pytree.tree_unflatten(flat[len(owned) : len(values)], spec)
        watches = effects is not SideEffects.TRACED
        arguments = list(_argument_contents((fake_args, fake_kwargs), signature)) if watches else []
        try:
            with (
                without_new_cache_entries(recorder.nodes, reachable.caches),
                bound_to_fakes(recorder, free_tensors, inputs[len(values) :]),
                without_outer_optimizer_steps(recorder),
            ):
                result, rebound = _call(function, tensors, (fake_args, fake_kwargs), recorder)
        finally:
            changes = undone_changes(reachable, {id(argument) for argument in flat})
        _check_rebound(subject, rebound, effects)
        return replay.with_updates(result, changes, arguments, rebound if watches else ())

    slots = (
        *_owned_slots(owned),
        *(
            _slot(_argument_name(path, signature), index, value, settings)
            for index, (path, value) in enumerate(paths, len(owned))
        ),
        *(FreeTensor(tensor.name, index) for index, tensor in enumerate(free_tensors, len(values))),
    )
    every = [*values, *(free_tensor.tensor for free_tensor in free_tensors)]
    captured, builder = capture_run(subject, FlatCall(every, slots, spec, run, free_tensors), settings)
    captured = replace(
        captured,
        structure=replace(captured.structure, parameters=_parameters(signature, spec)),
        reachable=reachable_state(function, values) if replay.single_use_reason else reachable,
        side_effects=effects,
        single_use_reason=replay.single_use_reason,
    )
    return captured, builder


def _call(
    function: Callable[..., Any], tensors: dict[str, Any], arguments: tuple[Any, Any], recorder: Recorder
) -> tuple[Any, list[tuple[str, Any]]]:
    """Call the function; return its output, and what it binds in place of a module's tensors."""
    args, kwargs = arguments
    if not isinstance(function, torch.nn.Module):
        return function(*args, **kwargs), []
    now = dict(tensors)
    result = call_with_tensors(function, now, args, kwargs, located_call(function, recorder))
    return result, [(fqn, tensor) for fqn, tensor in now.items() if tensor is not tensors.get(fqn, MISSING)]


def _argument_contents(trees: tuple[Any, Any], signature: inspect.Signature | None) -> Iterator[Contents]:
    """Yield the lists and dicts among the arguments, with the expression of the wrapper for each."""
    for index, (tree, root) in enumerate(zip(trees, ("args", "kwargs"), strict=True)):
        for path, container in containers_in((pytree.SequenceKey(index),), tree):
            name, expression = _argument_name(path, signature), root + pytree.keystr(path[1:])
            yield Contents((name,), container, shallow_copy(container), expression=expression)


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


def _owned_slots(owned: dict[str, Any]) -> list[FlatInput]:
    return [
        Parameter(fqn, index, fqn) if isinstance(tensor, torch.nn.Parameter) else Buffer(fqn, index, fqn)
        for index, (fqn, tensor) in enumerate(owned.items())
    ]


def _describe_subject(function: Any, name: str | None) -> Subject:
    """Return the function's names and the source location of its `def`."""
    is_module = isinstance(function, torch.nn.Module)
    owner = type(function) if is_module else function
    qualname = getattr(owner, "__qualname__", type(function).__qualname__)
    code = getattr(inspect.unwrap(function.forward if is_module else function), "__code__", None)
    span, called_at = None, NO_ORIGIN
    if code is not None and is_torch_file(code.co_filename):
        called_at = calling_frames()
        span = called_at.innermost
    elif code is not None:
        span = Span(code.co_filename, code.co_firstlineno, 0, code.co_firstlineno, 0)
    return Subject(function, name or qualname.rsplit(".", 1)[-1], qualname, "direct", span, called_at)


def _signature(function: Any) -> inspect.Signature | None:
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):
        return None


def _argument_name(path: tuple[Any, ...], signature: inspect.Signature | None) -> str:
    """Return the user's name for one leaf of `(args, kwargs)`: `x`, `batch["ids"]`, `rest[1]`."""
    which, position, *inner = path
    name = position.key if which.idx == 1 else _positional_name(position.idx, signature)
    return f"{name}{pytree.keystr(tuple(inner))}"


def _positional_name(position: int, signature: inspect.Signature | None) -> str:
    parameters = signature.parameters.values() if signature is not None else ()
    for index, parameter in enumerate(parameters):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return f"{parameter.name}[{position - index}]"
        if index == position:
            return parameter.name
    return f"arg{position}"


def _reject_lazy_modules(subject: Subject, owned: dict[str, Any], reachable: ReachableState) -> None:
    """Reject a lazy layer: it would create its parameters from tensors of the recording."""
    known = (*owned.items(), *((binding.name, binding.value) for binding in reachable.bindings))
    for name, value in known:
        if is_lazy(value):
            raise unsupported("lazy-module", subject.span, module=name)


def _check_rebound(subject: Subject, rebound: list[tuple[str, Any]], effects: SideEffects) -> None:
    """Check that a call can bind what a module rebinds: its tensors, and attributes that its hooks rebind.

    Raises:
        UnsupportedError: the graph is exported without a wrapper, or a name has no tensor any more.
    """
    for fqn, now in rebound:
        is_exported = effects is SideEffects.TRACED and is_owned(subject.function, fqn)
        if is_exported or not isinstance(now, torch.Tensor):
            raise unsupported("module-rebinds-tensor", subject.span, name=fqn)


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
