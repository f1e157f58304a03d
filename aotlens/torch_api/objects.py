"""Torchbind objects and the fake objects that replace them while tracing."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.torchbind import call_torchbind
from torch._library.fake_class_registry import FakeScriptObject, has_fake_class, maybe_to_fake_obj
from torch._subclasses.fake_tensor import FakeTensorMode

from aotlens.torch_api.patches.scopes import handled

__all__ = [
    "FakeScriptObject",
    "ScriptObject",
    "call_object_method",
    "call_torchbind",
    "to_fake_object",
    "torchbind_class_name",
]

ScriptObject: Any = torch.ScriptObject
"""An object of a torchbind class."""


def torchbind_class_name(value: Any) -> str:
    """Return the name of a torchbind object's class."""
    return str(value._type().qualified_name()).removeprefix("__torch__.torch.classes.")


def to_fake_object(fake_mode: FakeTensorMode, value: Any) -> Any:
    """Return an object of the fake class that is registered for tracing; the object itself without one."""
    qualified = str(value._type().qualified_name())
    if not qualified.startswith("__torch__.torch.classes.") or not has_fake_class(qualified):
        return value
    logger = logging.getLogger("torch._library.fake_class_registry")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of each method that the class does not need
    _OBJECTS.being_read = True
    try:
        return maybe_to_fake_obj(fake_mode, value)
    finally:
        logger.setLevel(level)
        _OBJECTS.being_read = False


_OBJECTS = threading.local()
"""`being_read`: whether torch reads an object of this thread's trace to make a fake object of it."""


@handled
def call_object_method(
    handler: Any, original: Callable[..., Any], method: Any, *args: Any, **kwargs: Any
) -> Any:
    """A method of a torchbind object: `handler.call_object_method(owner, name, args, kwargs)`."""
    if getattr(_OBJECTS, "being_read", False) or not isinstance(method.raw_owner, torch.ScriptObject):
        return original(method, *args, **kwargs)
    return handler.call_object_method(method.raw_owner, method.name, args, kwargs)
