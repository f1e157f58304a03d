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
from aotlens.capture.free_variables.reachable import CONTAINERS, Binding, Instance, ReachableState
from aotlens.capture.inputs.constant_arguments import is_same_number

ANY_VALUE = object()
"""Marks an item whose value is not guarded."""
BUILTIN_TYPES = (*CONTAINERS, OrderedDict, defaultdict)
"""Containers whose truth value means that they have items; a user's class may define it otherwise."""
PLAIN = (bool, int, float, complex, str, bytes)
"""Types whose equal values are interchangeable for a compiled function."""


def is_unchanged_binding(binding: Binding) -> bool:
    """Return True if a name is bound to the same value, and a container has the same items."""
    now = binding.now()
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
    return now is then or then is ANY_VALUE or _equal(now, then)


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
    for index, binding in enumerate(before.bindings):
        names[f"s{index}"], names[f"v{index}"] = binding.store, binding.value
        conditions.append(f"{read_expression(f's{index}', binding.store, repr(binding.name))} is v{index}")
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
        names[f"i{index}"], names[f"l{index}"] = instance.store, instance.bound_names
        subtracted = f" - sum(name in i{index} for name in l{index})" if instance.bound_names else ""
        conditions.append(f"len(i{index}){subtracted} == {len(instance.before)}")
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
        return all(map(_has_same_names, before.instances)) and all(map(is_unchanged_binding, before.bindings))

    return fits


def _has_same_names(instance: Instance) -> bool:
    if not instance.is_read:
        return True
    left = sum(name in instance.store for name in instance.bound_names)
    return len(instance.store) - left == len(instance.before)
