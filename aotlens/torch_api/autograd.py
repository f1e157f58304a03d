"""The autograd graph: its nodes, version counters, grad mode and the threads that run a backward."""

import contextvars
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from aotlens.torch_api.modes import without_modes
from aotlens.torch_api.patches.scopes import handled

__all__ = [
    "BACKWARD_CALL",
    "current_autograd_node",
    "enter_enable_grad",
    "gradient_sizes",
    "has_version_counter",
    "in_callers_context",
    "is_inference_mode_view",
    "is_view_of_custom_function",
    "next_sequence_number",
    "raise_as_inference_write",
    "set_grad_mode",
    "set_version",
    "shares_version_counter",
    "without_compiled_autograd",
]

current_autograd_node: Callable[[], Any] = torch._C._current_autograd_node
"""The autograd node whose backward is running on this thread, or None."""


BACKWARD_CALL: CodeType = torch.autograd.graph._engine_run_backward.__code__
"""The frame that runs a backward: what lies within it is a custom function's or a hook's."""


next_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
"""The number that the next autograd node of this thread will get."""


def in_callers_context(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function so that it runs with the context variables of the caller of `backward`.

    Autograd's engine runs the GPU part of a backward on another thread.  Inductor's settings are context
    variables.  torch passes the caller's to its own compiled backward; before 2.12 it does not, and the
    variables of this moment are used.
    """
    known, owner = contextvars.copy_context(), threading.get_ident()

    def run(*args: Any) -> Any:
        left = torch._C._is_key_in_tls("context")
        context = torch._C._get_obj_in_tls("context") if left else None
        if context is None and threading.get_ident() != owner:
            context = known
        return work(*args) if context is None else context.copy().run(work, *args)

    return run


def is_view_of_custom_function(tensor: torch.Tensor) -> bool:
    """Return True if a custom `autograd.Function` made the view, so its own backward is the gradient."""
    metas = torch._C._autograd.CreationMeta
    return tensor._is_view() and torch._C._autograd._get_creation_meta(tensor) == metas.IN_CUSTOM_FUNCTION


def has_version_counter(tensor: torch.Tensor) -> bool:
    """Return True if the tensor has a version counter; most inference tensors have none."""
    try:
        return tensor._version >= 0
    except RuntimeError:
        return False


def shares_version_counter(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if a write to one tensor counts as a write to the other; False after `.data`.

    Tensors without a counter share it with every tensor.
    """
    if (
        first.is_inference()
        or other.is_inference()
        or not (has_version_counter(first) and has_version_counter(other))
    ):
        return True
    before = first._version
    with _unsafe_preserve_version_counter(other):
        torch.autograd.graph.increment_version(other)
        return first._version != before


def raise_as_inference_write() -> None:
    """Raise torch's own error for a write to an inference tensor outside of inference mode."""
    included = torch._C._dispatch_tls_local_include_set().remove(torch._C.DispatchKey.Python)
    nothing = included - included
    with without_modes(), torch._C._ForceDispatchKeyGuard(included, nothing):  # the check is autograd's
        with torch.inference_mode():
            made = torch.empty(())
        made.zero_()


def is_inference_mode_view(tensor: torch.Tensor) -> bool:
    """Return True if a tensor, itself no inference tensor, is a view made under `inference_mode`."""
    made = torch._C._autograd.CreationMeta.INFERENCE_MODE
    return tensor._base is not None and torch._C._autograd._get_creation_meta(tensor) == made


def gradient_sizes(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """Return the sizes that the tensor's autograd edge expects of a gradient; None without a `grad_fn`."""
    step: Any = tensor.grad_fn
    return None if step is None else tuple(step._input_metadata[tensor.output_nr].shape)


@contextmanager
def without_compiled_autograd() -> Iterator[None]:
    """Let autograd's engine run a backward itself where the user has turned on compiled autograd."""
    exchange = torch._C._dynamo.compiled_autograd.set_autograd_compiler
    before = exchange(None, False)
    try:
        yield
    finally:
        exchange(*before)


def set_version(tensors: list[torch.Tensor], versions: list[int]) -> None:
    """Set the version counters of tensors."""
    if tensors:
        torch._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(versions))


@handled
def enter_enable_grad(handler: Callable[[], None], original: Callable[..., Any], self: Any) -> None:
    """`with enable_grad():`, which calls `handler()` first where code outside of torch enters it."""
    _notify(handler)
    original(self)


@handled
def set_grad_mode(handler: Callable[[], None], original: Callable[..., Any], self: Any, mode: bool) -> None:
    """`set_grad_enabled(True)`, which calls `handler()` first; the end of `no_grad` is no such call."""
    if mode:
        _notify(handler)
    original(self, mode)


_OF_GRAD_MODES = (inspect.getfile(torch.enable_grad), torch.utils._contextlib.__file__)
_TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep


def _notify(handler: Callable[[], None]) -> None:
    """Call the handler if code outside of torch turns grad mode on, and not where a block restores it."""
    frame = sys._getframe(3)  # below are the replacement, and what calls it
    while frame.f_back is not None and frame.f_code.co_filename in _OF_GRAD_MODES:
        if frame.f_code.co_name == "__exit__":
            return
        frame = frame.f_back
    if not frame.f_code.co_filename.startswith(_TORCH_FOLDER):
        handler()
