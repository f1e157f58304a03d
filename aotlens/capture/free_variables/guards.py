"""Guards on free variables.

Invariant: a compiled function is reused only while every attribute, global and closure variable that it may
read has the value that it was compiled with.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.free_variables.containers import BASES, CONTAINERS, base_of
from aotlens.capture.free_variables.namespaces import (
    MISSING,
    UNBOUND_ERRORS,
    attributes_of,
    read_expression,
)
from aotlens.capture.free_variables.state import (
    Binding,
    Contents,
    Instance,
    ReachableState,
    Rebinding,
)
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


def same_items(now: Any, then: Any) -> bool:
    """Return True if two containers of one type have the same items in the same order."""
    base = base_of(now)
    if base.__len__(now) != len(then):
        return False
    if base is dict:
        return all(key in then and is_same(value, then[key]) for key, value in dict.items(now))
    if base is set:
        return set.__eq__(now, then)
    return all(map(is_same, base.__iter__(now), then))


def is_same(now: Any, then: Any) -> bool:
    """Return True for the same object, an equal value or container, or a tensor of the kind."""
    if now is then:
        return True
    if type(now) is not type(then):
        return isinstance(then, TensorKind) and then.fits(now)
    if isinstance(now, BASES):
        return same_items(now, then)
    return isinstance(now, PLAIN) and is_same_number(now, then)


def free_variable_check(before: ReachableState, replaced: Sequence[Rebinding]) -> Callable[[], bool]:
    """Return a function that checks whether all free variables are unchanged.

    Of a tensor that each call replaces, a later call requires only the kind. The fast path is one expression
    of identity comparisons, some tens of nanoseconds each; values are compared only if one of them fails.
    """
    kinds = {
        (id(rebinding.store), rebinding.key): TensorKind(rebinding.before)
        for rebinding in replaced
        if isinstance(rebinding.before, torch.Tensor)
    }
    new_names = {id(rebinding.store) for rebinding in replaced if rebinding.before is MISSING}
    bindings = [
        replace(binding, value=kinds.get((id(binding.store), binding.name), binding.value))
        for binding in before.bindings
        if binding.is_read
    ]
    contents = [replace(item, before=_with_kinds(item, kinds)) for item in before.contents]
    instances = [item for item in before.instances if item.is_read or id(item.store) in new_names]
    if not (bindings or contents or instances):
        return lambda: True
    same_objects = _identity_check(bindings, contents, instances)

    def fits() -> bool:
        try:
            if same_objects():
                return True
        except UNBOUND_ERRORS:
            return False
        return (
            all(len(attributes_of(instance.store)) == len(instance.before) for instance in instances)
            and all(same_items(item.store, item.before) for item in contents)
            and all(map(_is_unchanged, bindings))
        )

    return fits


def _with_kinds(contents: Contents, kinds: Mapping[tuple[int, Any], TensorKind]) -> Any:
    """Return a container's items, with their kinds where each call replaces them."""
    own = {key: kind for (store, key), kind in kinds.items() if store == id(contents.store)}
    if isinstance(contents.before, dict):
        return contents.before | own
    return [own.get(index, item) for index, item in enumerate(contents.before)] if own else contents.before


def _identity_check(
    bindings: Sequence[Binding], contents: Sequence[Contents], instances: Sequence[Instance]
) -> Callable[[], bool]:
    """Return a function that is True if all names have the same objects; it raises if one is not bound."""
    names: dict[str, Any] = {"same_items": same_items, "attributes_of": attributes_of}
    conditions: list[str] = []
    for index, binding in enumerate(bindings):
        names[f"s{index}"], names[f"v{index}"] = binding.store, binding.value
        read = read_expression(f"s{index}", binding.store, repr(binding.name))
        is_kind = isinstance(binding.value, TensorKind)
        conditions.append(f"v{index}.fits({read})" if is_kind else f"{read} is v{index}")
        if isinstance(binding.value, torch.Tensor):
            conditions.append(f"v{index}.requires_grad is {binding.requires_grad}")
    for index, item in enumerate(contents):
        names[f"c{index}"], names[f"b{index}"] = item.store, item.before
        is_empty = not item.before and type(item.store) in BUILTIN_TYPES
        conditions.append(f"not c{index}" if is_empty else f"same_items(c{index}, b{index})")
    for index, instance in enumerate(instances):
        names[f"i{index}"] = instance.store
        names_now = f"i{index}" if isinstance(instance.store, dict) else f"attributes_of(i{index})"
        conditions.append(f"len({names_now}) == {len(instance.before)}")
    check: Callable[[], bool] = eval(f"lambda: {' and '.join(conditions)}", names)  # noqa: S307 (our own text)
    return check


def _is_unchanged(binding: Binding) -> bool:
    """Return True if a name is bound to the same value, or to an equal one."""
    now = binding.now()
    if isinstance(now, torch.Tensor) and not isinstance(binding.value, TensorKind):
        return now is binding.value and now.requires_grad is binding.requires_grad
    return is_same(now, binding.value)
