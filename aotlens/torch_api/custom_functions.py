"""Calls of `torch.autograd.Function`, observed or handled by somebody else."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction, FunctionCtx

from aotlens.torch_api.patches import replaced

__all__ = [
    "notify_custom_backward",
    "notify_zeros_not_materialised",
    "redirect_custom_functions",
    "redirect_function_graphs",
]


@contextmanager
def redirect_function_graphs(
    apply: Callable[[tuple[Any, Any], Any, dict[str, Any]], Any],
) -> Iterator[None]:
    """Within it, custom functions that Dynamo made two graphs of go there: graphs, arguments, settings."""
    module: Any = sys.modules.get("torch._functorch.autograd_function")
    kind = getattr(module, "AutogradFunctionApply", None)
    if kind is None:
        yield
        return
    usual = kind.__call__

    def call(self: Any, forward: Any, backward: Any, *args: Any, **how: Any) -> Any:
        if "saved_for_backward_idx" not in how or torch._C._functorch.peek_interpreter_stack() is not None:
            return usual(self, forward, backward, *args, **how)
        return apply((forward, backward), args, how)

    with replaced(kind, __call__=call):
        yield


@contextmanager
def notify_custom_backward(tell: Callable[[Any, Any], None]) -> Iterator[None]:
    """Within it, `tell` gets each node of a custom function whose backward has run, and what that gives."""
    apply = BackwardCFunction.apply

    def told(self: Any, *gradients: Any) -> Any:
        found = apply(self, *gradients)
        tell(self, found)
        return found

    with replaced(BackwardCFunction, apply=told):
        yield


@contextmanager
def notify_zeros_not_materialised(tell: Callable[[Any], None]) -> Iterator[None]:
    """Within it, `tell` gets each node of a custom function that asks for None in place of zeros."""
    ask = FunctionCtx.set_materialize_grads

    def asked(self: Any, value: bool) -> None:
        ask(self, value)
        if not value:
            tell(self)

    with replaced(FunctionCtx, set_materialize_grads=asked):
        yield


@contextmanager
def redirect_custom_functions(handle: Callable[..., Any]) -> Iterator[None]:
    """Within it, a call of a custom `autograd.Function` in this thread is `handle(apply, args, kwargs)`.

    No function mode sees its arguments.
    """
    owner, real = threading.get_ident(), vars(torch.autograd.Function)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        call = real.__get__(None, cls)
        return handle(call, args, kwargs) if threading.get_ident() == owner else call(*args, **kwargs)

    function: Any = torch.autograd.Function
    function.apply = classmethod(apply)
    try:
        yield
    finally:
        function.apply = real
