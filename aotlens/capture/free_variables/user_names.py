"""The user's names for free variables: `self.last`, `history[0]`, `state.parts`.

Invariant: names distinguish objects of one class; each layer is named by its path in the compiled module.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from types import MethodType
from typing import Any

import torch

from aotlens.capture.free_variables.name_uses import NameWrite
from aotlens.capture.free_variables.reachable import Binding, ReachableState
from aotlens.model.spans import text_of

OBJECT_KINDS = frozenset({"the attribute", "the class attribute", "the submodule", "the tensor"})
"""Kinds of binding that belong to an object or a class."""
MAX_DEPTH = 4
"""The maximum number of nested objects in a name."""


def user_name_of(
    reachable: ReachableState, function: Callable[..., Any], binding: Binding, writes: Sequence[NameWrite]
) -> str:
    """Return the user's name for a binding that the function writes to."""
    first, *keys = binding.keys
    outer = binding
    if binding.outer_keys:
        outer = next(
            (
                candidate
                for candidate in reachable.bindings
                if candidate.name == first and _contains_item(candidate, binding)
            ),
            binding,
        )
    owner = ""
    if outer.kind_text in OBJECT_KINDS:
        owner = _layer_path(function, outer.store) or _written_owner(str(first), writes)
        owner = (
            owner or _owner_name(reachable, outer.store, MAX_DEPTH) or getattr(outer.store, "__name__", "")
        )
    name = f"{owner}.{first}" if owner else str(first)
    return name + "".join(f"[{key!r}]" for key in keys)


def _contains_item(outer: Binding, inner: Binding) -> bool:
    """Return True if an item lies inside the outer binding's value."""
    value = outer.value
    for key in inner.outer_keys[1:]:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return False
    return not outer.outer_keys and value is inner.store


def _layer_path(function: Any, store: Any) -> str:
    """Return `self.encoder` for the attributes of a layer of the compiled module."""
    root = function.__self__ if isinstance(function, MethodType) else function
    return _path_to("self", root, store)


def _path_to(name: str, value: Any, store: Any) -> str:
    """Return the path from the name to the object with these attributes; empty if there is none."""
    if isinstance(value, torch.nn.Module):
        for path, layer in value.named_modules():
            owned = vars(layer)
            if any(
                candidate is store for candidate in (owned, layer._modules, layer._parameters, layer._buffers)
            ):
                return ".".join(filter(None, (name, path)))
    return name if getattr(value, "__dict__", None) is store else ""


def _written_owner(name: str, writes: Sequence[NameWrite]) -> str:
    """Return the expression before the name at the user's write: `type(self)`."""
    for span in (write.span for write in writes if write.span is not None):
        before, dot, _ = text_of(span).partition(f".{name}")
        if dot and re.fullmatch(r"[\w.()]+", before):
            return before
    return ""


def _owner_name(reachable: ReachableState, store: Any, deepest: int) -> str:
    """Return the name of the object with these attributes."""
    return next(_owner_names(reachable, store, deepest), "")


def _owner_names(reachable: ReachableState, store: Any, deepest: int) -> Iterator[str]:
    for binding in reachable.bindings:
        path = _path_to(str(binding.path), binding.value, store)
        if not path:
            continue
        owner = (
            _owner_name(reachable, binding.store, deepest - 1)
            if binding.kind_text in OBJECT_KINDS and deepest
            else ""
        )
        yield f"{owner}.{path}" if owner else path
