"""Guards on free variables.

Invariant: a compiled function is reused only while every attribute, global and closure variable that it may
read has the value that it was compiled with.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import torch

from aotlens.capture.free_variables.members import base_of
from aotlens.capture.free_variables.namespaces import read_expression
from aotlens.capture.free_variables.state import CONTAINERS, Binding, Instance, ReachableState
from aotlens.capture.inputs.constant_arguments import is_same_number

BUILTIN_TYPES = (*CONTAINERS, OrderedDict, defaultdict)
"""Containers whose truth value means that they have items; a user's class may define it otherwise."""
PLAIN = (bool, int, float, complex, str, bytes)
"""Types whose equal values are interchangeable for a compiled function."""


class TensorKind:
    """What a call may know of a tensor that it replaces without reading it; a guard keeps this instead."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._facts = _facts(tensor)

    def fits(self, value: Any) -> bool:
        """Return True for a tensor of the same kind."""
        return isinstance(value, torch.Tensor) and _facts(value) == self._facts


def _facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    flags = tensor.requires_grad, tensor.is_leaf
    return type(tensor), tensor.shape, strides, tensor.dtype, tensor.device, tensor.layout, flags


def is_unchanged_binding(binding: Binding) -> bool:
    """Return True if a name is bound to the same value, and a container has the same items."""
    now = binding.now()
    if isinstance(binding.value, TensorKind):
        return binding.value.fits(now)
    if isinstance(now, torch.Tensor):
        return now is binding.value and now.requires_grad is binding.requires_grad
    if binding.content is None:
        return now is binding.value or _equal(now, binding.value)
    return type(now) is type(binding.value) and same_items(now, binding.content)


def same_items(now: Any, then: Any) -> bool:
    """Return True if two containers of one type have the same items in the same order."""
    base = base_of(now)
    if base.__len__(now) != len(then):
        return False
    if base is dict:
        return all(key in then and _same(value, then[key]) for key, value in dict.items(now))
    if base is set:
        return set.__eq__(now, then)
    return all(map(_same, base.__iter__(now), then))


def _same(now: Any, then: Any) -> bool:
    return now is then or _equal(now, then) or (isinstance(then, TensorKind) and then.fits(now))


def _equal(now: Any, then: Any) -> bool:
    if type(now) is not type(then):
        return False
    if isinstance(now, tuple):
        return same_items(now, then)
    return isinstance(now, PLAIN) and is_same_number(now, then)


def free_variable_check(before: ReachableState) -> Callable[[], bool]:
    """Return a function that checks whether all free variables are unchanged.

    The fast path is one expression of identity comparisons, some tens of nanoseconds each; values are
    compared only if one of them fails.
    """
    names: dict[str, Any] = {}
    conditions = []
    bindings = [binding for binding in before.bindings if binding.is_read]
    for index, binding in enumerate(bindings):
        names[f"s{index}"], names[f"v{index}"] = binding.store, binding.value
        read = read_expression(f"s{index}", binding.store, repr(binding.name))
        is_kind = isinstance(binding.value, TensorKind)
        conditions.append(f"v{index}.fits({read})" if is_kind else f"{read} is v{index}")
        if isinstance(binding.value, torch.Tensor):
            conditions.append(f"v{index}.requires_grad is {binding.requires_grad}")
        if binding.content is not None:
            names[f"c{index}"] = binding.content
            items = f"same_items(v{index}, c{index})"
            own_length = type(binding.value) not in BUILTIN_TYPES
            conditions.append(items if binding.content or own_length else f"not v{index}")
    for index, instance in enumerate(before.instances):
        if not instance.is_read:
            continue
        names[f"i{index}"] = instance.store
        conditions.append(f"len(i{index}) == {len(instance.before)}")
    if not conditions:
        return lambda: True
    source = f"lambda: {' and '.join(conditions)}"
    same_objects = eval(source, {"same_items": same_items, **names})  # noqa: S307 (our own text)

    def fits() -> bool:
        try:
            if same_objects():
                return True
        except (LookupError, ValueError):  # the name is no longer bound
            return False
        return all(map(_has_same_names, before.instances)) and all(map(is_unchanged_binding, bindings))

    return fits


def _has_same_names(instance: Instance) -> bool:
    return not instance.is_read or len(instance.store) == len(instance.before)
