"""Members of classes and code, read without running the user's code."""

import sys
from collections.abc import Iterator
from dis import opmap
from types import CodeType, FunctionType
from typing import Any

import torch

from aotlens.capture.free_variables.namespaces import has_slots
from aotlens.capture.provenance.frames import is_first_party_file

STORES = frozenset(opmap[name] for name in ("STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"))
"""Instructions that bind an attribute, a global or a closure variable."""


def is_user_class(kind: type) -> bool:
    """Return True if a class is defined in the user's own files."""
    module = sys.modules.get(kind.__module__)
    return kind.__module__ == "__main__" or is_first_party_file(getattr(module, "__file__", None) or "")


def defaults_of(function: FunctionType) -> dict[str, Any]:
    """Return the defaults of a function's parameters, by name."""
    defaults = function.__defaults__ or ()
    named = (
        function.__code__.co_varnames[: function.__code__.co_argcount][-len(defaults) :] if defaults else ()
    )
    return {**dict(zip(named, defaults, strict=True)), **(function.__kwdefaults__ or {})}


def inner_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from inner_codes(constant)


def has_attributes(value: Any) -> bool:
    kind = type(value)
    return hasattr(value, "__dict__") or (is_user_class(kind) and has_slots(kind))


def function_of(member: Any) -> Any:
    """Return the function behind a method or a property; any other member unchanged."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)


def names_of(code: CodeType | None) -> frozenset[str]:
    """Return the names that code reads or writes, including nested functions."""
    codes = inner_codes(code) if code is not None else ()
    return frozenset(name for inner in codes for name in inner.co_names)


def package_names_of(kind: type) -> frozenset[str]:
    """Return the names in packages' code of a class and its bases, without `object` and `nn.Module`."""
    return frozenset[str]().union(
        *(
            names_of(getattr(function_of(member), "__code__", None))
            for base in kind.__mro__
            if base not in (object, torch.nn.Module) and not is_user_class(base)
            for member in vars(base).values()
        )
    )
