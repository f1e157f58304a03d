"""Reads and writes that no operator reports: `.data`, `.grad`, `register_hook`, indices.

Each function makes the value that replaces torch's own (scope `TRACE`).  What it reports goes to dispatch
modes and not to the handler of the scope: where traces are nested, as in the function of a higher-order
operator, each of them is called, the outermost first.  The recorder (`capture/recorder.py`) is the mode that
defines these callbacks.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack

from aotlens.torch_api.modes import current_mode, mode_callbacks
from aotlens.torch_api.patches.scopes import Current, Replace, around, handled

__all__ = [
    "announced",
    "assign_data",
    "data_pointer",
    "detach_in_place",
    "grad_attribute",
    "index_tensor",
    "require_grad",
    "resize_storage",
]

_DEEPCOPY = torch.Tensor.__deepcopy__.__code__


def assign_data(original: Any, current: Current) -> Any:
    """`fake.data = source`, which calls `on_data_assignment(fake, source)` first."""

    def assign(target: Any, source: Any) -> None:
        for notify in mode_callbacks("on_data_assignment"):
            notify(target, source)
        original.__set__(target, source)

    return property(original.__get__, assign)


@around
def resize_storage(original: Any, storage: Any, size: Any) -> Any:
    """`storage.resize_(size)`, which calls `on_storage_resize(storage, size)` alone where a mode has it."""
    callbacks = mode_callbacks("on_storage_resize")
    for notify in callbacks:
        notify(storage, size)
    return storage if callbacks else original(storage, size)


@around
def data_pointer(original: Any, owner: Any) -> Any:
    """`fake.data_ptr()` and `storage.data_ptr()`, which call `on_memory_read(owner)` first.

    Not for `copy.deepcopy`, which only asks whether there is memory.
    """
    caller = sys._getframe(2).f_code
    for notify in mode_callbacks("on_memory_read") if caller is not _DEEPCOPY else ():
        notify(owner)
    return original(owner)


def announced(callback: str) -> Replace:
    """A method or function of a tensor, which calls `callback(tensor)` of the modes first."""

    @around
    def call(original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        for notify in mode_callbacks(callback):
            notify(tensor)
        return original(tensor, *args, **kwargs)

    return call


@around
def detach_in_place(original: Any, target: Any) -> Any:
    """`fake.detach_()`, which calls `on_detach(fake)` afterwards."""
    original(target)
    for notify in mode_callbacks("on_detach") if not target.requires_grad else ():
        notify(target)  # under inference mode, `detach_` leaves the tensor as it is
    return target


@around
def require_grad(original: Any, target: Any, requires_grad: bool = True) -> Any:
    """`fake.requires_grad_(False)`, which calls `on_detach(fake)` afterwards."""
    __tracebackhide__ = True  # torch's error about a dtype is the user's (`session/errors/failures.py`)
    original(target, requires_grad)
    for notify in mode_callbacks("on_detach") if not requires_grad else ():
        notify(target)
    return target


def grad_attribute(original: Any, current: Current) -> Any:
    """`tensor.grad`, which calls `on_grad_access(tensor)` before it is read or set."""
    announce = announced("on_grad_access")
    get, set_ = (announce(access, current) for access in (original.__get__, original.__set__))
    return property(get, set_, original.__delete__)


@handled
def index_tensor(handler: Any, original: Callable[..., Any], tensor: Any, index: Any, *value: Any) -> Any:
    """`fake[index]` and `fake[index] = value`, whose index goes through `handler.prepare_index` first.

    Not where another mode or a transform looks at the function, as at those of higher-order operators, nor
    where torch's flex attention handles the index itself.
    """
    __tracebackhide__ = True  # torch's error about an index is the user's (`session/errors/failures.py`)
    return original(tensor, _prepared(handler, index), *value)


def _prepared(handler: Any, index: Any) -> Any:
    if getattr(current_mode(), "is_subgraph", True) or torch._C._functorch.maybe_current_level():
        return index
    names = (type(mode).__name__ for mode in _get_current_function_mode_stack())  # its import is slow
    return index if "TransformGetItemToIndex" in names else handler.prepare_index(index)
