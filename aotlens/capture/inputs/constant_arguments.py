"""Arguments that are no tensors: what the graph has built in of them.

Invariant: a value is told by its class and by what it equals; a number, flag or text that an argument's
attribute held when the graph was made is looked at again at each call; attributes that hold anything else are
told apart by the object alone.
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
"""Types of values that equal themselves only, and stay what they are."""


def is_compared_by_repr(value: Any) -> bool:
    """Whether equality does not tell a number from others: zeros have a sign, and nan equals nothing."""
    return isinstance(value, (float, complex)) and (not value or value != value or isinstance(value, complex))


def is_same_number(now: Any, then: Any) -> bool:
    """Whether two values of one class are one to a compiled function."""
    return repr(now) == repr(then) if is_compared_by_repr(then) else bool(now == then)


def plain_attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object that hold a number, a flag or a text; nothing for other values."""
    if isinstance(value, (*PLAIN_VALUES, type)) or not hasattr(value, "__dict__") or callable(value):
        return {}
    attributes = vars(value).items()
    return {key: attribute for key, attribute in attributes if type(attribute) in PLAIN_VALUES}


def is_value(value: Any) -> bool:
    """Whether an equal one of the same class is as good: numbers of all kinds, bytes, ranges, functions."""
    if isinstance(value, slice):
        return all(isinstance(part, PLAIN_VALUES) for part in (value.start, value.stop, value.step))
    if isinstance(value, SINGLETONS):
        return True
    equality: Any = type(value).__eq__
    by_value = equality is not object.__eq__ and value.__hash__ is not None
    return by_value and not hasattr(value, "__dict__")


def is_compared_by_attributes(value: Any) -> bool:
    """Whether its attributes hold all of it, and each a number, a flag or a text."""
    slots = any(getattr(kind, "__slots__", ()) for kind in type(value).__mro__)
    if slots or callable(value) or not hasattr(value, "__dict__"):
        return False
    return plain_attributes(value) == vars(value)


def hashable(value: Any) -> Any:
    """What tells a value from others of its class as a dictionary's key."""
    if isinstance(value, (float, complex)) and is_compared_by_repr(value):
        return repr(value)
    if isinstance(value, slice):
        return value.start, value.stop, value.step
    if isinstance(value, set):
        return frozenset(value)
    return value if value.__hash__ is not None else id(value)
