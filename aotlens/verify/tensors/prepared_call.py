"""Prepare one call: the callable, its arguments, and every tensor that it can reach, by the user's names.

Invariant: no program can distinguish two prepared calls made by `copies`, and they share no memory.
"""

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import Any

import torch
from torch import Tensor, nn

from aotlens.capture.free_variables.stores import flatten_with_path
from aotlens.torch_api.operators import pytree
from aotlens.verify.tensors.clone import Cloner
from aotlens.verify.tensors.free_variables import free_variables


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """A tensor with the user's name for it."""

    name: str
    tensor: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PreparedCall:
    """One callable with arguments, ready to be called once."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[Named, ...]
    """Parameters, buffers and argument tensors in call order; a tensor that is passed twice appears twice."""
    leaves: tuple[Named, ...]
    """Where gradients end: leaf inputs, the hidden leaf behind a non-leaf input, bases of views."""
    labels: tuple[str, ...] | None = None
    """Names of the positional arguments; None derives them from the callable's signature."""
    before: tuple[Tensor, ...] | None = None
    """The values of `inputs` before the call, in order; None unless this is a copy."""


def prepare_call(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None,
) -> PreparedCall:
    """Prepare a call without copying; gradients end at its own leaf tensors."""
    labels = tuple(names) if names is not None else None
    inputs = named_tensors(fn, tuple(args), kwargs or {}, labels)
    leaves = _unique(item for item in inputs if item.tensor.is_leaf and item.tensor.requires_grad)
    return PreparedCall(fn, tuple(args), kwargs or {}, inputs, leaves, labels)


def copies(
    original: PreparedCall, count: int = 2, keep_fn: bool = False, cloner: Callable[[], Cloner] = Cloner
) -> tuple[PreparedCall, ...]:
    """Return independent copies; with `keep_fn` the callable itself (and its state) is not copied."""
    return tuple(_copy(original, keep_fn, cloner()) for _ in range(count))


def _copy(original: PreparedCall, keep_fn: bool, cloner: Cloner) -> PreparedCall:
    with torch.enable_grad():
        fn = original.fn if keep_fn else clone_callable(original.fn, cloner)
        if fn is original.fn:
            for item in callable_tensors(fn):
                cloner.keep(item.tensor)
        args = tuple(clone_value(value, cloner) for value in original.args)
        kwargs = {key: clone_value(value, cloner) for key, value in original.kwargs.items()}
    inputs = named_tensors(fn, args, kwargs, original.labels)
    names = {id(item.tensor): item.name for item in reversed(inputs)}
    hidden = (
        Named(names.get(id(owner), f"base of {_views_of(owner, inputs)}"), leaf)
        for owner, leaf in cloner.leaves
    )
    own = (item for item in inputs if item.tensor.is_leaf and item.tensor.requires_grad)
    before = tuple(_apart(old.tensor, new.tensor) for old, new in zip(original.inputs, inputs, strict=True))
    return PreparedCall(fn, args, kwargs, inputs, _unique((*own, *hidden)), original.labels, before)


def _apart(old: Tensor, new: Tensor) -> Tensor:
    """Return the old values, independent of later changes to the new tensor."""
    return old.detach().clone() if old is new else old


def clone_callable(fn: Callable[..., Any], cloner: Cloner) -> Callable[..., Any]:
    """Copy a module, a module's bound method or a partial of one; plain functions are returned unchanged."""
    if isinstance(fn, nn.Module):
        return cloner.module(fn)
    if isinstance(fn, types.MethodType) and isinstance(fn.__self__, nn.Module):
        return types.MethodType(fn.__func__, cloner.module(fn.__self__))
    if isinstance(fn, partial):
        args = (clone_value(value, cloner) for value in fn.args)
        kwargs = {key: clone_value(value, cloner) for key, value in fn.keywords.items()}
        return partial(clone_callable(fn.func, cloner), *args, **kwargs)
    return fn


def clone_value(value: Any, cloner: Cloner) -> Any:
    """Copy one argument: containers are rebuilt, tensors and modules copied, other objects shared."""
    leaves, structure = pytree.tree_flatten(value)
    return pytree.tree_unflatten([_clone_leaf(leaf, cloner) for leaf in leaves], structure)


def _clone_leaf(value: Any, cloner: Cloner) -> Any:
    if isinstance(value, Tensor):
        return cloner.tensor(value)
    if isinstance(value, nn.Module):
        return cloner.module(value)
    return value.clone_state() if isinstance(value, torch.Generator) else value


def named_tensors(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    labels: tuple[str, ...] | None = None,
) -> tuple[Named, ...]:
    """Return every tensor that a call reaches under a distinct name, because tensors are paired by name.

    Parameters and buffers come first, then the arguments in order.  Two of the user's names may be equal:
    `weight` is a parameter of the module and an argument of its `forward`.
    """
    items = tuple(_tensors_by_users_names(fn, args, kwargs, labels))
    names = distinct_names([item.name for item in items])
    return tuple(Named(name, item.tensor) for name, item in zip(names, items, strict=True))


def distinct_names(names: Sequence[str], reserved: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names with a number after each one that occurs before or is reserved: `weight (2)`."""
    used, distinct = set(reserved), []
    for name in names:
        candidate = next(text for text in chain([name], _numbered(name)) if text not in used)
        distinct.append(candidate)
        used.add(candidate)
    return tuple(distinct)


def _numbered(name: str) -> Iterator[str]:
    return (f"{name} ({number})" for number in count(2))


def _tensors_by_users_names(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    labels: tuple[str, ...] | None,
) -> Iterator[Named]:
    yield from callable_tensors(fn)
    arguments = zip(labels, args, strict=True) if labels else argument_names(fn, args, kwargs)
    for name, value in arguments:
        yield from named_leaves(name, value)


def path_text(path: Any) -> str:
    """Return the subscripts and attributes that lead to a leaf as the user writes them: `["ids"][0]`."""
    return pytree.keystr(path).replace("'", '"')


def named_leaves(name: str, value: Any) -> Iterator[Named]:
    """Yield the tensors of one argument or result: `batch["ids"]`, `model.weight`."""
    for path, leaf in flatten_with_path(value)[0]:
        path_name = name + path_text(path)
        if isinstance(leaf, Tensor):
            yield Named(path_name, leaf)
        elif isinstance(leaf, nn.Module):
            yield from module_tensors(leaf, path_name + ".")


def state_of(*callables: Callable[..., Any]) -> list[Tensor]:
    """Return the tensors that these callables hold, each once."""
    tensors = {id(item.tensor): item.tensor for fn in callables for item in callable_tensors(fn)}
    return list(tensors.values())


def callable_tensors(fn: Callable[..., Any]) -> Iterator[Named]:
    """Yield the callable's own tensors: of a module, of `partial` arguments, of a closure."""
    if isinstance(fn, nn.Module):
        yield from module_tensors(fn)
    elif isinstance(fn, types.MethodType) and isinstance(fn.__self__, nn.Module):
        yield from module_tensors(fn.__self__, "self.")
    elif isinstance(fn, partial):
        yield from callable_tensors(fn.func)
        yield from named_leaves("args", (fn.args, fn.keywords))
    else:
        for name, value in free_variables(fn).items():
            yield from named_leaves(name, value)


def module_tensors(module: nn.Module, prefix: str = "") -> Iterator[Named]:
    """Yield parameters and buffers by qualified name, then tensors in plain attributes."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        yield Named(prefix + name, tensor)
    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if isinstance(value, Tensor):
                yield Named(".".join(filter(None, (prefix.rstrip("."), path, name))), value)


def argument_names(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Return each argument under its parameter's name, or by position if the signature cannot be read."""
    target = fn.forward if isinstance(fn, nn.Module) else fn
    try:
        bound = inspect.signature(target).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return [(f"input {index}", value) for index, value in enumerate(args)] + list(kwargs.items())
    return list(bound.arguments.items())


def _views_of(owner: Tensor, inputs: Sequence[Named]) -> str:
    return next((item.name for item in inputs if item.tensor._base is owner), "an input")


def _unique(items: Any) -> tuple[Named, ...]:
    seen: dict[int, Named] = {}
    for item in items:
        seen.setdefault(id(item.tensor), item)
    return tuple(seen.values())
