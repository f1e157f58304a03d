"""Names of torch that can be replaced: attributes, entries of tables, gradient rules.

Invariant: a target is a path, and looks its object up when it is asked, so that a table of targets loads no
module of torch.
"""

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["MISSING", "Attribute", "Entry", "HigherOrderRule", "Target"]

MISSING: Any = object()
"""The value of a name that an object inherits, or lacks."""


@dataclass(frozen=True, slots=True)
class Target(ABC):
    """A name of torch's that can be replaced."""

    owner: str
    """The path of the object that has the name: `torch.random`, `torch:Tensor`."""

    @property
    def module(self) -> str:
        """The module that must be loaded for it."""
        return self.owner.partition(":")[0]

    def holder(self, load: bool) -> Any:
        """The object that has the name; None where its module is not loaded, and not to be loaded."""
        return _named(self.owner, load)

    @abstractmethod
    def own(self, holder: Any) -> Any:
        """What the object itself has under the name."""

    def value(self, holder: Any) -> Any:
        """What torch gets under the name, inherited or not."""
        return self.own(holder)

    @abstractmethod
    def put(self, holder: Any, value: Any) -> None:
        """Set the value of the object, or remove its own with `MISSING`."""


def _named(path: str, load: bool) -> Any:
    """The object at `module:Class.attribute`."""
    module_name, _, names = path.partition(":")
    module: ModuleType | None = sys.modules.get(module_name)
    if module is None and load:
        module = import_module(module_name)
    if module is None:
        return None
    owner: Any = module
    for name in filter(None, names.split(".")):
        owner = getattr(owner, name, None)
    return owner


@cache
def _key(path: str) -> Any:
    """The object at a path that is the key of an entry."""
    return _named(path, load=True)


@dataclass(frozen=True, slots=True)
class Attribute(Target):
    """An attribute of a module or class."""

    name: str

    def __str__(self) -> str:
        return f"{self.owner.replace(':', '.')}.{self.name}"

    def own(self, holder: Any) -> Any:
        return vars(holder).get(self.name, MISSING)  # not getattr: a static method stays one

    def value(self, holder: Any) -> Any:
        return getattr(holder, self.name, MISSING)

    def put(self, holder: Any, value: Any) -> None:
        if value is not MISSING:
            setattr(holder, self.name, value)
        elif self.name in vars(holder):
            delattr(holder, self.name)


@dataclass(frozen=True, slots=True)
class Entry(Target):
    """An entry of a dictionary."""

    key: str
    """The path of the object that is the key: `torch:ops.aten.view.default`."""
    is_new: bool = False
    """Whether torch has no such entry."""

    def __str__(self) -> str:
        return f"{self.owner.replace(':', '.')}[{self.key.partition(':')[2]}]"

    def own(self, holder: Any) -> Any:
        return holder.get(_key(self.key), MISSING)

    def value(self, holder: Any) -> Any:
        value = self.own(holder)
        return None if self.is_new and value is MISSING else value

    def put(self, holder: Any, value: Any) -> None:
        key = _key(self.key)
        if value is MISSING:
            holder.pop(key, None)
        else:
            holder[key] = value


@dataclass(frozen=True, slots=True)
class HigherOrderRule(Target):
    """The gradient rule of a higher-order operator."""

    def __str__(self) -> str:
        return f"{self.owner.replace(':', '.')}.py_kernels[Autograd]"

    def own(self, holder: Any) -> Any:
        return holder.py_kernels.get(_key("torch:_C.DispatchKey.Autograd"), MISSING)

    def put(self, holder: Any, value: Any) -> None:
        holder.py_kernels[_key("torch:_C.DispatchKey.Autograd")] = value
        holder._dispatch_cache.clear()  # where the operator looks first
