"""Arguments other than tensors: which of their properties the graph is specialised on.

Invariant: a value is identified by its class and equality; numbers, flags and strings in its attributes are
guarded at each call; an object with other attributes is identified by identity alone.
"""

from enum import Enum
from types import BuiltinFunctionType, EllipsisType, FunctionType, MethodType, NoneType
from typing import Any

import torch

PLAIN_VALUES = (bool, int, float, str, type(None))

SINGLETONS = (
    *(NoneType, EllipsisType, Enum, type, FunctionType, BuiltinFunctionType, MethodType),
    *(torch.layout, torch.memory_format),
)
"""Types whose values equal only themselves and never change."""


def is_compared_by_repr(value: Any) -> bool:
    """Return True if equality is not enough: zeros have a sign, and nan equals nothing."""
    return isinstance(value, (float, complex)) and (not value or value != value or isinstance(value, complex))


def is_same_number(now: Any, then: Any) -> bool:
    """Return True if two numbers of one class are interchangeable for a compiled function."""
    return repr(now) == repr(then) if is_compared_by_repr(then) else bool(now == then)


def plain_attributes(value: Any) -> dict[str, Any]:
    """Return an object's attributes that are numbers, flags or strings; empty for other values."""
    if isinstance(value, (*PLAIN_VALUES, type)) or not hasattr(value, "__dict__") or callable(value):
        return {}
    attributes = vars(value).items()
    return {key: attribute for key, attribute in attributes if type(attribute) in PLAIN_VALUES}


def is_value(value: Any) -> bool:
    """Return True if equal values of the class are interchangeable: numbers, bytes, ranges, functions."""
    if isinstance(value, slice):
        return all(isinstance(part, PLAIN_VALUES) for part in (value.start, value.stop, value.step))
    if isinstance(value, SINGLETONS):
        return True
    equality: Any = type(value).__eq__
    by_value = equality is not object.__eq__ and value.__hash__ is not None
    return by_value and not hasattr(value, "__dict__")


def is_compared_by_attributes(value: Any) -> bool:
    """Return True if the object consists of attributes that are numbers, flags or strings."""
    slots = any(getattr(kind, "__slots__", ()) for kind in type(value).__mro__)
    if slots or callable(value) or not hasattr(value, "__dict__"):
        return False
    return plain_attributes(value) == vars(value)


def as_hashable(value: Any) -> Any:
    """Return a dictionary key that distinguishes a value from others of its class."""
    if isinstance(value, (float, complex)) and is_compared_by_repr(value):
        return repr(value)
    if isinstance(value, slice):
        return value.start, value.stop, value.step
    if isinstance(value, set):
        return frozenset(value)
    return value if value.__hash__ is not None else id(value)
