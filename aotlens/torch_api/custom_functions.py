"""Calls of `torch.autograd.Function`, observed or handled by somebody else.

Each function makes the value that replaces torch's own (`patches`).
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch

from aotlens.torch_api.patches.scopes import Current, handled

__all__ = ["call_custom_function", "call_function_graphs", "materialize_grads", "run_custom_backward"]


@handled
def call_function_graphs(
    handler: Any,
    original: Callable[..., Any],
    self: Any,
    forward: Any,
    backward: Any,
    *args: Any,
    **settings: Any,
) -> Any:
    """A custom function that Dynamo made two graphs of: `handler.apply_graphs(graphs, args, settings)`.

    Torch's own runs under a transform of `torch.func`, which has its own rule for the operator, and for
    graphs that do not say which values the forward saves.
    """
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    if transformed or "saved_for_backward_idx" not in settings:
        return original(self, forward, backward, *args, **settings)
    return handler.apply_graphs((forward, backward), args, settings)


@handled
def run_custom_backward(handler: Any, original: Callable[..., Any], self: Any, *tangents: Any) -> Any:
    """The backward of a custom function, which calls `handler(node, gradients)` afterwards."""
    gradients = original(self, *tangents)
    handler(self, gradients)
    return gradients


@handled
def materialize_grads(handler: Any, original: Callable[..., None], self: Any, value: bool) -> None:
    """`ctx.set_materialize_grads(False)`, which calls `handler.note_undefined_tangents(ctx)`."""
    original(self, value)
    if not value:
        handler.note_undefined_tangents(self)


def call_custom_function(original: Any, current: Current) -> Any:
    """`Function.apply`, which is `handler(apply, args, kwargs)`: no function mode sees its arguments.

    It is a class method, so the handler gets it bound to the class that is called.
    """

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        call, handler = MethodType(original.__func__, cls), current()
        return call(*args, **kwargs) if handler is None else handler(call, args, kwargs)

    return classmethod(apply)
