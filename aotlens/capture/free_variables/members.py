"""Members of classes and code, read without running the user's code."""

import sys
from collections.abc import Iterator
from dis import opmap
from types import CodeType, FunctionType
from typing import Any

from aotlens.capture.free_variables.namespaces import has_slots
from aotlens.capture.provenance.frames import is_first_party_file

STORE_ATTR = opmap["STORE_ATTR"]
STORES = frozenset(opmap[name] for name in ("STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"))
"""Instructions that bind an attribute, a global or a closure variable."""


BINDERS = frozenset({"setattr", "register_buffer", "register_parameter", "_buffers", "_parameters"})
"""Names by which code binds a layer's attributes, besides assignments."""


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


def binds_attributes(code: CodeType) -> bool:
    """Return True if a call may run the code and bind an attribute, buffer or parameter of an object.

    A constructor binds only attributes of its own new object.
    """
    if code.co_name == "__init__":
        return False
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    named = not BINDERS.isdisjoint(code.co_names)
    return named or STORE_ATTR in code.co_code[::2] or any(map(binds_attributes, inner))


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
    if code is None:
        return frozenset()
    inner = (names_of(const) for const in code.co_consts if isinstance(const, CodeType))
    return frozenset(code.co_names).union(*inner)
