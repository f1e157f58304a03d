"""Calls of `torch.autograd.Function`, observed or handled by somebody else.

Each function makes the value that replaces torch's own (`patches`).
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch

from aotlens.torch_api.patches.scopes import Current

__all__ = ["call_custom_function", "call_function_graphs", "materialize_grads", "run_custom_backward"]


def call_function_graphs(original: Callable[..., Any], current: Current) -> Any:
    """A custom function that Dynamo made two graphs of: `handler.apply_graphs(graphs, args, settings)`."""

    def call(self: Any, forward: Any, backward: Any, *args: Any, **settings: Any) -> Any:
        handler = current()
        transformed = torch._C._functorch.peek_interpreter_stack() is not None
        if handler is None or transformed or "saved_for_backward_idx" not in settings:
            return original(self, forward, backward, *args, **settings)
        return handler.apply_graphs((forward, backward), args, settings)

    return call


def run_custom_backward(original: Callable[..., Any], current: Current) -> Any:
    """The backward of a custom function, which calls `handler(node, gradients)` afterwards."""

    def apply(self: Any, *gradients: Any) -> Any:
        results = original(self, *gradients)
        handler = current()
        if handler is not None:
            handler(self, results)
        return results

    return apply


def materialize_grads(original: Callable[..., None], current: Current) -> Any:
    """`ctx.set_materialize_grads(False)`, which calls `handler.note_undefined_tangents(ctx)`."""

    def set_materialize_grads(self: Any, value: bool) -> None:
        original(self, value)
        handler = current()
        if handler is not None and not value:
            handler.note_undefined_tangents(self)

    return set_materialize_grads


def call_custom_function(original: Any, current: Current) -> Any:
    """`Function.apply`, which is `handler(apply, args, kwargs)`: no function mode sees its arguments."""

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        call, handler = MethodType(original.__func__, cls), current()
        return call(*args, **kwargs) if handler is None else handler(call, args, kwargs)

    return classmethod(apply)
