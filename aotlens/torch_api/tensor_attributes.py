"""Reads and writes that no operator reports: `.data`, `.grad`, `register_hook`, indices.

Each function makes the value that replaces torch's own (scope `TRACE`).  The callbacks of the dispatch
modes that define them are called, the outermost first.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack

from aotlens.torch_api.modes import current_mode, mode_callbacks
from aotlens.torch_api.patches.scopes import Current

__all__ = [
    "assign_data",
    "data_pointer",
    "detach_in_place",
    "grad_attribute",
    "index_tensor",
    "register_hook",
    "require_grad",
    "resize_storage",
    "share_memory",
]

_DEEPCOPY = torch.Tensor.__deepcopy__.__code__


def assign_data(original: Any, current: Current) -> Any:
    """`fake.data = source`, which calls `on_data_assignment(fake, source)` first."""

    def assign(target: Any, source: Any) -> None:
        for notify in mode_callbacks("on_data_assignment"):
            notify(target, source)
        original.__set__(target, source)

    return property(original.__get__, assign)


def resize_storage(original: Any, current: Current) -> Any:
    """`storage.resize_(size)`, which calls `on_storage_resize(storage, size)` alone where a mode has it."""

    def resize_(storage: Any, size: Any) -> Any:
        callbacks = mode_callbacks("on_storage_resize")
        for notify in callbacks:
            notify(storage, size)
        return storage if callbacks else original(storage, size)

    return resize_


def data_pointer(original: Any, current: Current) -> Any:
    """`fake.data_ptr()` and `storage.data_ptr()`, which call `on_memory_read(owner)` first.

    Not for `copy.deepcopy`, which only asks whether there is memory.
    """

    def data_ptr(owner: Any) -> Any:
        caller = sys._getframe(1).f_code
        for notify in mode_callbacks("on_memory_read") if caller is not _DEEPCOPY else ():
            notify(owner)
        return original(owner)

    return data_ptr


def share_memory(original: Any, current: Current) -> Any:
    """How a tensor's memory is shared by DLPack, which calls `on_memory_read(tensor)` first."""

    def share(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        for notify in mode_callbacks("on_memory_read"):
            notify(tensor)
        return original(tensor, *args, **kwargs)

    return share


def detach_in_place(original: Any, current: Current) -> Any:
    """`fake.detach_()`, which calls `on_detach(fake)` afterwards."""

    def detach_(target: Any) -> Any:
        original(target)
        for notify in mode_callbacks("on_detach") if not target.requires_grad else ():
            notify(target)  # under inference mode, `detach_` leaves the tensor as it is
        return target

    return detach_


def require_grad(original: Any, current: Current) -> Any:
    """`fake.requires_grad_(False)`, which calls `on_detach(fake)` afterwards."""

    def requires_grad_(target: Any, requires_grad: bool = True) -> Any:
        original(target, requires_grad)
        for notify in mode_callbacks("on_detach") if not requires_grad else ():
            notify(target)
        return target

    return requires_grad_


def grad_attribute(original: Any, current: Current) -> Any:
    """`tensor.grad`, which calls `on_grad_access(tensor)` before it is read or set."""

    def announced(access: Callable[..., Any]) -> Callable[..., Any]:
        def call(target: Any, *value: Any) -> Any:
            for notify in mode_callbacks("on_grad_access"):
                notify(target)
            return access(target, *value)

        return call

    return property(announced(original.__get__), announced(original.__set__), original.__delete__)


def register_hook(original: Any, current: Current) -> Any:
    """`tensor.register_hook(hook)`, which calls `on_hook_registration(tensor)` first."""

    def register(tensor: Any, hook: Any) -> Any:
        for notify in mode_callbacks("on_hook_registration"):
            notify(tensor)
        return original(tensor, hook)

    return register


def index_tensor(original: Callable[..., Any], current: Current) -> Any:
    """`fake[index]` and `fake[index] = value`, whose index goes through `handler.prepare_index` first.

    Not where another mode or a transform looks at the function, as at those of higher-order operators, nor
    where torch's flex attention handles the index itself.
    """

    def index_fake_tensor(tensor: Any, index: Any, *value: Any) -> Any:
        handler = current()
        return original(tensor, index if handler is None else _prepared(handler, index), *value)

    return index_fake_tensor


def _prepared(handler: Any, index: Any) -> Any:
    if getattr(current_mode(), "is_subgraph", True) or torch._C._functorch.maybe_current_level():
        return index
    names = (type(mode).__name__ for mode in _get_current_function_mode_stack())  # its import is slow
    return index if "TransformGetItemToIndex" in names else handler.prepare_index(index)
