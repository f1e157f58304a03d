"""Dispatch modes, function modes and dispatch keys of the current thread."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
)
from torch.utils._python_dispatch import _pop_mode as _pop_dispatch_mode
from torch.utils._python_dispatch import _push_mode as _push_dispatch_mode

__all__ = [
    "TorchDispatchMode",
    "TorchFunctionMode",
    "below_autograd",
    "below_views",
    "construct_on_cpu_first",
    "count_dispatch_modes",
    "count_function_modes",
    "current_dispatch_modes",
    "current_mode",
    "default_device",
    "function_mode_below",
    "hidden_from_user_modes",
    "is_any_autocast_enabled",
    "is_hidden_from_user_modes",
    "is_recording",
    "keys_without_cuda_autocast",
    "mode_callbacks",
    "user_function_mode_types",
    "with_user_function_modes",
    "with_view_tracking",
    "without_autocast",
    "without_modes",
    "without_onednn",
]


def default_device() -> torch.device | None:
    """Return the device that the caller has set as the default; None without one."""
    return torch.get_default_device() if torch._C._len_torch_function_stack() else None


below_autograd = torch._C._AutoDispatchBelowAutograd
"""Within it, operators do not record autograd."""


below_views = torch._C._AutoDispatchBelowADInplaceOrView
"""Within it, operators neither record autograd nor mark results as views."""


def with_view_tracking() -> AbstractContextManager[Any]:
    """Within it, views are marked as views again, where a mode is called below that."""
    exclude: Any = torch._C._SetExcludeDispatchKeyGuard
    guard: AbstractContextManager[Any] = exclude(torch._C.DispatchKey.ADInplaceOrView, False)
    return guard


count_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
"""How many dispatch modes are on for this thread."""


count_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
"""How many function modes are on for this thread."""


is_any_autocast_enabled: Callable[[], bool] = torch._C._is_any_autocast_enabled
"""Whether autocast is on for some device."""


without_autocast = torch._C._DisableAutocast
"""Within it, operators keep the dtypes of their arguments."""


def keys_without_cuda_autocast() -> AbstractContextManager[Any]:
    """Within it, operators skip the casts of CUDA's autocast."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
    guard: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(keys)
    return guard


@contextmanager
def without_onednn() -> Iterator[None]:
    """Let composite operators choose torch's own CPU kernels; `torch.backends.mkldnn.flags` warns of TF32."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def without_modes() -> Any:
    """A context in which no dispatch mode is active."""
    return _disable_current_modes()


def current_dispatch_modes() -> list[Any]:
    """The active dispatch modes, the outermost first."""
    return list(_get_current_dispatch_mode_stack())


def current_mode() -> Any:
    """The innermost dispatch mode, or None."""
    stack = _get_current_dispatch_mode_stack()
    return stack[-1] if stack else None


def mode_callbacks(method: str) -> list[Any]:
    """Return that method of each active dispatch mode that has it, the outermost first.

    A trace is found by its methods: this package imports no mode of ours.
    """
    return [getattr(mode, method) for mode in _get_current_dispatch_mode_stack() if hasattr(mode, method)]


def is_recording() -> bool:
    """Return True if a trace of ours runs on this thread; a compiled function called in it is part of it."""
    return torch._C._len_torch_dispatch_stack() > 0 and bool(mode_callbacks("on_grad_access"))


@contextmanager
def function_mode_below(mode: Any) -> Iterator[Callable[[], None]]:
    """Yield a function that puts the mode below all function modes of this thread, until the block ends."""
    entered: list[Any] = []

    def enter() -> None:
        if not entered:
            entered.append(mode)
            _restack(lambda modes: [mode, *modes])

    try:
        yield enter
    finally:
        if entered:
            _restack(lambda modes: [other for other in modes if other is not mode])


class _HiddenModes(threading.local):
    """The user's modes that one thread has put aside, within `hidden_from_user_modes`."""

    are_hidden = False
    function_modes: tuple[Any, ...] = ()
    """For `with_user_function_modes`."""


_HIDDEN_MODES = _HiddenModes()


@contextmanager
def hidden_from_user_modes(name: str) -> Iterator[None]:
    """Within it, the user's modes do not see what runs; a profiler sees one event of this name."""
    if _HIDDEN_MODES.are_hidden:
        yield
        return
    with ExitStack() as stack:
        if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
            stack.enter_context(torch.autograd.profiler.record_function(f"aotlens: {name}"))
            torch._C._autograd._enable_record_function(False)
            stack.callback(torch._C._autograd._enable_record_function, True)
        if torch._C._len_torch_function_stack():
            stack.enter_context(_without_user_function_modes())
        if torch._C._len_torch_dispatch_stack():
            stack.enter_context(_without_user_dispatch_modes())
        _HIDDEN_MODES.are_hidden = True
        stack.callback(setattr, _HIDDEN_MODES, "are_hidden", False)
        yield


def is_hidden_from_user_modes() -> bool:
    """Return True within `hidden_from_user_modes` on this thread: what runs is the compiler's own work."""
    return _HIDDEN_MODES.are_hidden


def user_function_mode_types() -> tuple[type, ...]:
    """Return the classes of the user's function modes, the outermost first."""
    if not torch._C._len_torch_function_stack():
        return ()
    return tuple(type(mode) for mode in _get_current_function_mode_stack() if _is_user_mode(mode))


def _is_user_mode(mode: Any) -> bool:
    return not type(mode).__module__.startswith(("torch.utils._device", "torch._", "aotlens."))


@contextmanager
def _without_user_function_modes() -> Iterator[None]:
    stack = _get_current_function_mode_stack()
    _HIDDEN_MODES.function_modes = tuple(mode for mode in stack if _is_user_mode(mode))
    try:
        _restack(lambda modes: [mode for mode in modes if not _is_user_mode(mode)])
        yield
    finally:
        _HIDDEN_MODES.function_modes = ()
        _restack(lambda _: stack)


@contextmanager
def with_user_function_modes() -> Iterator[None]:
    """Within it, the user's function runs under the user's own function modes, as in eager."""
    own = _HIDDEN_MODES.function_modes
    for mode in own:
        _push_mode(mode)
    try:
        yield
    finally:
        for _ in own:
            _pop_mode()


@contextmanager
def _without_user_dispatch_modes() -> Iterator[None]:
    """Within it, the user's dispatch modes are off; modes that make tensors fake, functional or symbolic
    stay."""
    stack = [mode for mode in _get_current_dispatch_mode_stack() if getattr(mode, "_mode_key", None) is None]
    own = [mode for mode in stack if type(mode).__module__.startswith("aotlens.")]
    try:
        for _ in stack:
            _pop_dispatch_mode()
        for mode in own:
            _push_dispatch_mode(mode)
        yield
    finally:
        for _ in own:
            _pop_dispatch_mode()
        for mode in stack:
            _push_dispatch_mode(mode)


def _restack(change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the stack of function modes; `change` gets and returns it from the lowest to the highest."""
    modes = [_pop_mode() for _ in range(torch._C._len_torch_function_stack())]
    for mode in change(modes[::-1]):
        _push_mode(mode)


@contextmanager
def construct_on_cpu_first() -> Iterator[None]:
    """Let `torch.tensor(…, device=…)` make a CPU tensor and copy it, which modes see.

    Otherwise torch makes it on the device, which no mode sees.
    """
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
