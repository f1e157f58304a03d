"""Higher-order operators and flex attention."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._higher_order_ops import utils
from torch._higher_order_ops.auto_functionalize import auto_functionalized, can_auto_functionalize
from torch._higher_order_ops.effects import _get_effect, with_effects
from torch._ops import _higher_order_ops

from aotlens.torch_api.patches.scopes import Current, Replace, around, handled

__all__ = [
    "accept_any_device",
    "auto_functionalized",
    "can_auto_functionalize",
    "compilation_env",
    "compile_and_call",
    "dense_kernel",
    "flex_attention_env",
    "gradient_rule",
    "has_ordered_effect",
    "higher_order_operator",
    "indices_from_tensors",
    "invoke_subgraph",
    "make_token",
    "sink_tokens",
    "with_effects",
    "without_empty_mutation_info",
]

invoke_subgraph: Any = torch.ops.higher_order.invoke_subgraph
"""Calls the function of a marked region."""


make_token: Callable[[], Any] = torch.ops.prims._make_token.default


sink_tokens: Callable[[Any], None] = torch.ops.prims._sink_tokens.default
"""Begin and end of a chain of `with_effects` in a graph for Inductor."""


def has_ordered_effect(func: Any) -> bool:
    """Return True if a call has a visible effect beside its outputs: it prints, or is registered so."""
    return _get_effect(func) is not None


def higher_order_operator(name: str) -> Any:
    """Return a registered higher-order operator; None if no loaded module of torch registers that name."""
    return _higher_order_ops.get(name)


def dense_kernel(func: Any) -> Callable[..., Any] | None:
    """Return what a higher-order operator runs on plain tensors; None without a kernel for all devices."""
    kernel: Callable[..., Any] | None = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
    return kernel


def gradient_rule(operator: str) -> Replace:
    """The gradient rule of a higher-order operator: `handler.gradient_rules[operator](func, args, kwargs)`.

    Where that returns NotImplemented, torch's own rule runs.
    """

    @handled
    def call(handler: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        func = getattr(torch.ops.higher_order, operator)
        result = handler.gradient_rules[operator](func, args, kwargs)
        return original(*args, **kwargs) if result is NotImplemented else result

    return call


@handled
def compile_and_call(handler: Any, original: Any, fn: Any, args: Any, kwargs: Any = None) -> Any:
    """How `torch.cond` and its like compile a call: `handler.call_higher_order(function, args, kwargs)`."""
    return handler.call_higher_order(fn, args, kwargs or {})


def compilation_env(original: Any, current: Current) -> Any:
    """The context in which torch 2.11 compiles such a call by `torch.compile`: the first one within it."""
    module: Any = torch
    if hasattr(utils, "_hop_compile_and_call"):
        return original

    @contextmanager
    def entered() -> Iterator[Any]:
        handler, compile_by_torch = current(), module.compile
        if handler is None:
            with original() as backend:
                yield backend
            return
        owner = threading.get_ident()

        def compiled(fn: Any, **options: Any) -> Any:
            if threading.get_ident() != owner:
                return compile_by_torch(fn, **options)
            module.compile = compile_by_torch
            return lambda *args, **kwargs: handler.call_higher_order(fn, args, kwargs)

        with original() as backend:
            module.compile = compiled
            try:
                yield backend
            finally:
                module.compile = compile_by_torch

    return entered


@handled
def flex_attention_env(handler: Any, original: Any) -> Any:
    """The context in which `flex_attention` calls its operator: `handler.flex_attention_env()`."""
    return handler.flex_attention_env()


@around
def accept_any_device(original: Any, query: Any, key: Any, value: Any) -> None:
    """`flex_attention`'s check of the device, which rejects CPU tensors that require grad: it accepts all."""


def without_empty_mutation_info(
    operator: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """Return a higher-order operator's arguments without the list of mutated operands, where it is empty.

    From 2.14 on `map` gets that list, here by position although it accepts it by name only.
    """
    if operator != "map_impl":
        return args, kwargs
    written = kwargs.get("mutated_arg_indices") or "".join(args[3:])
    return args[:3], {"mutated_arg_indices": written} if written else {}


def indices_from_tensors() -> Any:
    """Return a context in which `tensor[i]` with a scalar tensor `i` reads no value, for flex attention."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # imports Dynamo

    return TransformGetItemToIndex()
