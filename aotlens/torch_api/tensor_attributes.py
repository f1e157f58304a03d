"""Reads and writes that no operator reports: `.data`, `.grad`, `register_hook`, indices.

The dispatch modes that define the callback of an event are called, the outermost first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import _get_current_function_mode_stack

from aotlens.torch_api.modes import current_mode, mode_callbacks
from aotlens.torch_api.patches import replaced

__all__ = [
    "grad_without_callbacks",
    "notify_grad_access",
    "notify_hook_registration",
    "notify_silent_changes",
    "preprocess_indices",
]


def notify_silent_changes() -> None:
    """Make what no operator tells of known to the dispatch modes that ask for it.  Idempotent.

    `fake.data = source` calls `on_data_assignment(fake, source)` before it is done; `storage.resize_(size)`
    calls `on_storage_resize(storage, size)` in its place, since a fake storage has no memory;
    `fake.detach_()` and `fake.requires_grad_(False)` call `on_detach(fake)` after they are done.
    """
    if "data" in vars(FakeTensor):
        return
    plain: Any = torch.Tensor.data
    resize: Any = torch.UntypedStorage.resize_

    def assign(target: Any, source: Any) -> None:
        for told in mode_callbacks("on_data_assignment"):
            told(target, source)
        plain.__set__(target, source)

    def resize_and_tell(storage: Any, size: Any) -> Any:
        asking = mode_callbacks("on_storage_resize")
        for told in asking:
            told(storage, size)
        return storage if asking else resize(storage, size)

    def detach_and_tell(target: Any) -> Any:
        torch.Tensor.detach_(target)
        for told in mode_callbacks("on_detach") if not target.requires_grad else ():
            told(target)  # inference mode leaves a history as it is
        return target

    def require_and_tell(target: Any, requires_grad: bool = True) -> Any:
        torch.Tensor.requires_grad_(target, requires_grad)
        for told in mode_callbacks("on_detach") if not requires_grad else ():
            told(target)
        return target

    FakeTensor.detach_ = detach_and_tell  # type: ignore[assignment]
    FakeTensor.requires_grad_ = require_and_tell  # type: ignore[assignment, method-assign]
    FakeTensor.data = property(plain.__get__, assign)  # type: ignore[assignment]
    torch.UntypedStorage.resize_ = resize_and_tell  # type: ignore[assignment, method-assign]


_GRAD: Any = torch.Tensor.grad


def grad_without_callbacks(tensor: Any) -> Any:
    """`tensor.grad`, of which nobody is told; None for what is no tensor."""
    with torch._C.DisableTorchFunction():  # a function mode would look for it anew
        return _GRAD.__get__(tensor) if isinstance(tensor, torch.Tensor) else None


@contextmanager
def notify_grad_access() -> Iterator[None]:
    """Within it, whoever reads or sets `tensor.grad` calls `on_grad_access(tensor, "read" or "set")` of the
    dispatch modes that ask for it, which may name the tensor that stands for this one."""
    if "grad" in vars(torch.Tensor):
        yield
        return
    gradient = _GRAD

    def stand_in(target: Any, how: str) -> Any:
        told = (told(target, how) for told in mode_callbacks("on_grad_access"))
        return next((one for one in told if one is not None), target)

    torch.Tensor.grad = property(  # type: ignore[assignment]
        lambda target: gradient.__get__(stand_in(target, "read")),
        lambda target, value: gradient.__set__(stand_in(target, "set"), value),
        gradient.__delete__,
    )
    try:
        yield
    finally:
        del torch.Tensor.grad


@contextmanager
def notify_hook_registration() -> Iterator[None]:
    """Within it, registering a hook on a tensor calls `on_hook_registration(tensor)` of dispatch modes."""
    register = torch.Tensor.register_hook

    def told(tensor: Any, hook: Any) -> Any:
        for tell in mode_callbacks("on_hook_registration"):
            tell(tensor)
        return register(tensor, hook)

    with replaced(torch.Tensor, register_hook=told):
        yield


@contextmanager
def preprocess_indices(prepare: Callable[[Any], Any]) -> Iterator[None]:
    """Within it, what stands in the brackets behind a fake tensor is first given to `prepare`.

    Not where another mode or a transform looks at the function, as at those of higher-order operators, nor
    where torch's flex attention takes brackets itself.
    """
    if "__getitem__" in vars(FakeTensor):
        yield
        return
    get, put = torch.Tensor.__getitem__, torch.Tensor.__setitem__

    def prepared(index: Any) -> Any:
        if getattr(current_mode(), "is_subgraph", True) or torch._C._functorch.maybe_current_level():
            return index
        names = (type(mode).__name__ for mode in _get_current_function_mode_stack())  # its import is slow
        return index if "TransformGetItemToIndex" in names else prepare(index)

    def read_in_brackets(self: Any, index: Any) -> Any:
        return get(self, prepared(index))

    def write_in_brackets(self: Any, index: Any, value: Any) -> None:
        put(self, prepared(index), value)

    FakeTensor.__getitem__ = read_in_brackets  # type: ignore[method-assign]
    FakeTensor.__setitem__ = write_in_brackets  # type: ignore[method-assign]
    try:
        yield
    finally:
        del FakeTensor.__getitem__, FakeTensor.__setitem__
