"""Names of torch that can be replaced: attributes, entries of tables, gradient rules.

Invariant: a target is a path, and looks its object up when it is asked, so that a table of targets loads no
module of torch.
"""

import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

__all__ = ["MISSING", "Attribute", "Entry", "HigherOrderRule", "Target"]

MISSING: Any = object()
"""The value of a name that an object inherits, or lacks."""


class Target(Protocol):
    """A name of torch's that can be replaced."""

    @property
    def module(self) -> str:
        """The module that must be loaded for it."""

    def holder(self, load: bool) -> Any:
        """The object that has the name; None where its module is not loaded, and not to be loaded."""

    def own(self, holder: Any) -> Any:
        """What the object itself has under the name."""

    def value(self, holder: Any) -> Any:
        """What torch gets under the name, inherited or not."""

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
class Attribute:
    """An attribute of a module or class."""

    owner: str
    """`torch.random`, `torch:Tensor`."""
    name: str

    def __str__(self) -> str:
        return f"{self.owner.replace(':', '.')}.{self.name}"

    @property
    def module(self) -> str:
        return self.owner.partition(":")[0]

    def holder(self, load: bool) -> Any:
        return _named(self.owner, load)

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
class Entry:
    """An entry of a dictionary."""

    owner: str
    key: str
    """The path of the object that is the key: `torch:ops.aten.view.default`."""
    is_new: bool = False
    """Whether torch has no such entry."""

    def __str__(self) -> str:
        return f"{self.owner.replace(':', '.')}[{self.key.partition(':')[2]}]"

    @property
    def module(self) -> str:
        return self.owner.partition(":")[0]

    def holder(self, load: bool) -> Any:
        return _named(self.owner, load)

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
class HigherOrderRule:
    """The gradient rule of a higher-order operator."""

    operator: str
    """`cond`."""

    def __str__(self) -> str:
        return f"torch.ops.higher_order.{self.operator}.py_kernels[Autograd]"

    @property
    def module(self) -> str:
        return "torch"

    def holder(self, load: bool) -> Any:
        return _named(f"torch:ops.higher_order.{self.operator}", load)

    def own(self, holder: Any) -> Any:
        return holder.py_kernels.get(_key("torch:_C.DispatchKey.Autograd"), MISSING)

    def value(self, holder: Any) -> Any:
        return self.own(holder)

    def put(self, holder: Any, value: Any) -> None:
        holder.py_kernels[_key("torch:_C.DispatchKey.Autograd")] = value
        holder._dispatch_cache.clear()  # where the operator looks first
