"""What happens around compilations: a script passes a function to `torch.compile`, or a call stays in eager.

Invariant: nothing here runs on a call of compiled code, until a function has reached the recompile limit.
"""

import inspect
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
from torch._C._dynamo.eval_frame import set_guard_complete_hook

from aotlens.torch_api.dynamo.events import DynamoListener, log_exceptions
from aotlens.torch_api.dynamo.frames import frames_above_dynamo
from aotlens.torch_api.patches.scopes import Patch, handled
from aotlens.torch_api.patches.targets import Attribute

__all__ = [
    "COMPILE_CALLS",
    "EagerCalls",
    "module_compiled_in_place",
    "passed_callable",
    "state_against_dynamo",
    "wrap_calls",
]


@handled
def _on_compile(listener: DynamoListener, original: Callable[..., Any], self: Any, fn: Any) -> Any:
    from torch._dynamo.eval_frame import OptimizeContext

    if isinstance(self, OptimizeContext):
        with log_exceptions():
            listener.compiles(fn, frames_above_dynamo())
    return original(self, fn)


COMPILE_CALLS = Patch(
    Attribute("torch._dynamo.eval_frame:_TorchDynamoContext", "__call__"),
    _on_compile,
    "the lines that pass a function to `torch.compile` are reported",
)
"""A row of the scope `LISTEN`."""


@handled
def wrap_calls(wrap: Callable[[Any, Any, Any], Any], original: Callable[..., Any], self: Any, fn: Any) -> Any:
    """Have the handler wrap what `torch.compile` makes of a function, with the backend: `handler(backend,
    function, compiled)`.  Copies of a compiled module are made here too.
    """
    from torch._dynamo.eval_frame import OptimizeContext, innermost_backend

    compiled = original(self, fn)
    if not isinstance(self, OptimizeContext) or not inspect.isfunction(compiled):
        return compiled
    backend = innermost_backend(self.callback)
    wrapped = wrap(getattr(backend, "compiler_fn", backend), fn, compiled)
    if wrapped is not compiled:
        wrapped._torchdynamo_wrapper_id = id(wrapped)  # torch finds `fn` again by it
    return wrapped


def passed_callable(function: Any) -> Any:
    """Return the module or function that the script passed to `torch.compile`: torch compiles a function that
    calls a module, a method that a module inherits, or a function that is compiled already.
    """
    while getattr(function, "_torchdynamo_wrapper_id", None) == id(function):
        function = getattr(function, "_orig_mod", None) or function._torchdynamo_orig_callable
    inner = getattr(function, "__wrapped__", None)
    if isinstance(inner, torch.nn.Module):
        return inner
    owner, called = getattr(function, "__self__", None), getattr(function, "__func__", None)
    if isinstance(owner, torch.nn.Module) and called in (
        getattr(type(owner), "forward", None),  # that of a `ScriptModule` cannot be read
        torch.nn.Module._call_impl,
        torch.nn.Module._wrapped_call_impl,
    ):
        return owner
    return function


def state_against_dynamo() -> str:
    """Return what keeps Dynamo from compiling any call at present; empty if nothing does."""
    from torch._dynamo import config, eval_frame

    stance = eval_frame._stance.stance
    if stance != "default":
        return f'`torch.compiler.set_stance("{stance}")` was in force'
    if config.disable:
        return "`torch._dynamo.config.disable` was set"
    if torch._C._len_torch_dispatch_stack():
        return "a TorchDispatchMode was active, under which Dynamo compiles nothing"
    return ""


def module_compiled_in_place(function: Any) -> torch.nn.Module | None:
    """Return the module whose `compile()` passes this bound method to `torch.compile`; None for others."""
    owner = getattr(function, "__self__", None)
    is_of_compile = getattr(function, "__func__", None) is torch.nn.Module._call_impl
    return owner if is_of_compile and isinstance(owner, torch.nn.Module) else None


class EagerCalls:
    """Counts the calls of functions that have reached the recompile limit and run in eager; mutable.

    Torch calls its hook with False where no compilation serves a call, and does not name the function.  The
    function is the next one that Python enters, which a profiling function sees and then removes itself.
    """

    def __init__(self, notify: Callable[[CodeType], None]) -> None:
        self.is_exact = True
        """False once a call was not counted, as another profiling function was active."""
        self._notify = notify
        self._codes: set[CodeType] = set()
        self._previous: Any = None
        self._is_installed = False

    def watch(self, code: CodeType) -> None:
        """Report each later call of the function that runs in eager."""
        self._codes.add(code)
        if not self._is_installed:
            self._previous, self._is_installed = set_guard_complete_hook(self._looked_up), True

    def close(self) -> None:
        """Watch no function any more."""
        if not self._is_installed:
            return
        replaced = set_guard_complete_hook(self._previous)
        if replaced != self._looked_up:  # the script has installed its own since, which need not call ours
            set_guard_complete_hook(replaced)
            self.is_exact = False
        self._is_installed = False

    def _looked_up(self, is_hit: bool) -> bool:
        if not is_hit:
            if sys.getprofile() is None:
                sys.setprofile(self._enters)
            else:
                self.is_exact = False
        return is_hit if self._previous is None else self._previous(is_hit)

    def _enters(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":  # the hook returns
            return
        sys.setprofile(None)
        if frame.f_code in self._codes:
            with log_exceptions():
                self._notify(frame.f_code)
