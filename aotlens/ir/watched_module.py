"""Graph modules that generate their Python code on demand and report changes.

Invariant: an unchanged module does the same as its program's text, so that the text may run in its place;
after the first change the module itself runs.
"""

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.hooks import RemovableHandle

from aotlens.torch_api.aot import LazyGraphModule


class WatchedGraphModule(LazyGraphModule):
    """A graph module whose `forward` is generated at its first use."""

    __jit_unused_properties__ = [  # noqa: RUF012 (torch declares it so)
        *LazyGraphModule.__jit_unused_properties__,
        "code",
        "forward",
        "_lazy_forward",
    ]

    @property
    def _lazy_forward(self) -> Any:
        """Generate the method, which replaces this property in the module's own class."""
        self.real_recompile()
        return self.forward

    forward = _lazy_forward

    def recompile(self) -> None:  # type: ignore[override]  # the base has a class method of it
        super().recompile()
        report_change(self)

    def register_forward_pre_hook(self, *args: Any, **kwargs: Any) -> RemovableHandle:
        report_change(self)
        return super().register_forward_pre_hook(*args, **kwargs)

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> RemovableHandle:
        report_change(self)
        return super().register_forward_hook(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "forward":
            self.real_recompile()  # replaces the property, which cannot be assigned to
            report_change(self)
        super().__setattr__(name, value)


BOXING = (
    "aotlens.frontends.compilers.make_boxed_func.<locals>.boxed",
    "torch._functorch._aot_autograd.utils.make_boxed_func.<locals>.g",
)
"""Functions that take their arguments in one list and only call what they wrap."""

_WATCHED: WeakKeyDictionary[WatchedGraphModule, list[Callable[[], None]]] = WeakKeyDictionary()
"""The unchanged modules, each with the callbacks for its first change."""


def watch(module: WatchedGraphModule) -> WatchedGraphModule:
    """Return the module, and report its changes from now on."""
    _WATCHED[module] = []
    return module


def report_change(module: WatchedGraphModule) -> None:
    for notify in _WATCHED.pop(module, ()):
        notify()


def notify_of_change(module: WatchedGraphModule, notify: Callable[[], None]) -> None:
    """Call `notify` once, at the module's first change."""
    _WATCHED[module].append(notify)


def returned_unchanged(compiled: Any, module: Any) -> bool:
    """Return True if a backend returned the unchanged graph module that it got, or its `forward`, boxed or
    not.

    Codegen asks this: until the module's first change, the program's text runs in its place.
    """
    if module not in _WATCHED:
        return False
    while isinstance(compiled, FunctionType) and _name(compiled) in BOXING:
        compiled = vars(compiled).get("__wrapped__")
    if compiled is module:
        return True
    generated = vars(type(module)).get("forward")  # each graph module has a class of its own
    return isinstance(compiled, MethodType) and (compiled.__self__, compiled.__func__) == (module, generated)


def _name(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}"
