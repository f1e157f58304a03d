"""The direct frontend: the user's Python runs as it is, on fake tensors."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from aotlens.capture.caches import caches_left_clean
from aotlens.capture.containers import watch_containers, with_refills
from aotlens.capture.effects import LeftBehind
from aotlens.capture.frames import calling_place, is_torch_file
from aotlens.capture.graph_places import placed_call
from aotlens.capture.hooked import bound_by_hooks
from aotlens.capture.outside import outside_slots, reached_tensors, standing_in
from aotlens.capture.owned import call_on, module_tensors
from aotlens.capture.paths import flatten_with_path
from aotlens.capture.reach import NOTHING, reach
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, CapturedInput, FlatCall, Subject
from aotlens.capture.run import capture_run
from aotlens.capture.settings import Settings
from aotlens.errors import UnsupportedError
from aotlens.ir.slots import Buffer, FlatInput, Parameter, UserInput
from aotlens.report.records import Span
from aotlens.torch_api import marked_static, pytree


def capture_direct(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: Settings,
    name: str | None = None,
) -> Captured:
    """Run `function(*args, **kwargs)` once; parameters and buffers of a module come before the arguments."""
    subject = describe_subject(function, name)
    _refuse_lazy(subject)
    owned = module_tensors(function)
    paths, spec = flatten_with_path((args, kwargs))
    signature = _signature(function)
    slots: list[FlatInput] = list(owned_slots(owned))
    for index, (path, value) in enumerate(paths):
        own_name, is_static = argument_name(path, signature), marked_static(value)
        slots.append(UserInput(own_name, len(owned) + index, is_static=is_static))
    values = [*owned.values(), *(value for _, value in paths)]
    surroundings = NOTHING if settings.allow_side_effects else reach(function, values)
    reached = reached_tensors(surroundings, values)
    slots += outside_slots(reached, len(values))
    given_count = len(values)

    def run(recorder: Recorder, inputs: tuple[CapturedInput, ...]) -> Any:
        clean = caches_left_clean(recorder.nodes, surroundings.caches)
        fakes = (given.argument for given in inputs[given_count:])
        try:
            with clean, standing_in(recorder, reached, inputs[given_count:]):
                result = called(recorder, inputs[:given_count])
        finally:
            left = LeftBehind(surroundings, tuple(zip(reached, fakes, strict=True)), subject)
        return left.beside(result)

    def called(recorder: Recorder, inputs: tuple[CapturedInput, ...]) -> Any:
        flat = [given.argument for given in inputs]
        call_args, call_kwargs = pytree.tree_unflatten(flat[len(owned) :], spec)
        containers = () if settings.allow_side_effects else watch_containers(call_args, call_kwargs)
        recorder.containers = tuple(one.container for one in containers)
        if isinstance(function, torch.nn.Module):
            tensors = dict(zip(owned, flat, strict=False))
            with bound_by_hooks(function) as attributes:
                result = call_on(function, tensors, call_args, call_kwargs, placed_call(function, recorder))
            rebound = _rebound(subject, tensors, flat, not settings.allow_side_effects)
            rebound += () if settings.allow_side_effects else tuple(attributes)
        else:
            rebound = ()
            result = function(*call_args, **call_kwargs)
        return with_refills(
            result, containers, rebound, partial(argument_name, signature=signature), subject.span
        )

    values += [one.tensor for one in reached]
    captured = capture_run(subject, FlatCall(values, tuple(slots), spec, run, reached), settings)
    structure = replace(captured.structure, parameters=_parameters(signature, spec))
    return replace(captured, structure=structure, surroundings=surroundings)


def owned_slots(owned: dict[str, Any]) -> list[FlatInput]:
    return [
        Parameter(fqn, index, fqn) if isinstance(tensor, torch.nn.Parameter) else Buffer(fqn, index, fqn)
        for index, (fqn, tensor) in enumerate(owned.items())
    ]


def describe_subject(function: Any, name: str | None) -> Subject:
    """The function's names and the place of its `def`."""
    code_owner = function.forward if isinstance(function, torch.nn.Module) else function
    owner = type(function) if isinstance(function, torch.nn.Module) else function
    qualname = getattr(owner, "__qualname__", type(function).__qualname__)
    code = getattr(inspect.unwrap(code_owner), "__code__", None)
    span = None
    if code is not None and is_torch_file(code.co_filename):
        place = calling_place()
        return Subject(
            function, name or qualname.rsplit(".", 1)[-1], qualname, "direct", place.innermost, place
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
    """The user's name for one leaf of `(args, kwargs)`: `x`, `batch["ids"]`, `rest[1]`."""
    which, position = path[0].idx, path[1]
    if which == 1:
        return f"{position.key}{pytree.keystr(path[2:])}"
    names = list(signature.parameters.values()) if signature is not None else []
    for at, parameter in enumerate(names):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL and position.idx >= at:
            return f"{parameter.name}[{position.idx - at}]{pytree.keystr(path[2:])}"
        if at == position.idx:
            return f"{parameter.name}{pytree.keystr(path[2:])}"
    return f"arg{position.idx}{pytree.keystr(path[2:])}"


def _refuse_lazy(subject: Subject) -> None:
    function: Any = subject.function
    if isinstance(function, torch.nn.Module) and any(
        torch.nn.parameter.is_lazy(tensor) for tensor in (*function.parameters(), *function.buffers())
    ):
        raise UnsupportedError("a lazy module without its parameters", subject.span, "call it once before")


def _rebound(
    subject: Subject, tensors: dict[str, Any], given: list[Any], allowed: bool
) -> tuple[tuple[str, Any], ...]:
    """Buffers that the module bound to another tensor."""
    found = tuple(
        (fqn, now) for (fqn, now), before in zip(tensors.items(), given, strict=False) if now is not before
    )
    for fqn, now in found:
        if not allowed or not isinstance(now, torch.Tensor):
            raise UnsupportedError(
                f"the module binds `{fqn}` to another tensor",
                subject.span,
                f"write in place: `self.{fqn}.copy_(…)`",
            )
    return found


def _parameters(signature: inspect.Signature | None, spec: Any) -> tuple[str, ...]:
    """Names of the positional parameters when each argument is one leaf; empty otherwise."""
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
