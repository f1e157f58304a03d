"""Higher-order operators and flex attention."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import (
    auto_functionalized,
    auto_functionalized_v2,
    can_auto_functionalize,
)
from torch._higher_order_ops.effects import _get_effect, with_effects

from aotlens.torch_api.patches import replaced

__all__ = [
    "allow_flex_gradients_on_cpu",
    "auto_functionalized",
    "auto_functionalized_v2",
    "can_auto_functionalize",
    "dense_kernel",
    "has_ordered_effect",
    "indices_from_tensors",
    "invoke_subgraph",
    "make_token",
    "redirect_hop_compilation",
    "replace_gradient_rule",
    "sink_tokens",
    "uncompiled_flex_attention",
    "with_effects",
    "without_empty_mutation_info",
]

invoke_subgraph: Any = torch.ops.higher_order.invoke_subgraph
"""Calls a marked region, given as a function."""


make_token: Callable[[], Any] = torch.ops.prims._make_token.default


sink_tokens: Callable[[Any], None] = torch.ops.prims._sink_tokens.default
"""Begin and end of a chain of `with_effects` in a graph for Inductor."""


def has_ordered_effect(func: Any) -> bool:
    """Whether a call is seen outside of its results (it prints, or is registered so)."""
    return _get_effect(func) is not None


def dense_kernel(func: Any) -> Callable[..., Any] | None:
    """What a higher-order operator runs on plain tensors; None where it has nothing for all devices."""
    found: Callable[..., Any] | None = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
    return found


def replace_gradient_rule(operator: str, instead: Callable[..., Any]) -> None:
    """Ask `instead(operator, args, kwargs)` before torch's gradient rule for a higher-order operator.

    It answers NotImplemented where torch is to go on by itself.
    """
    func = getattr(torch.ops.higher_order, operator)
    key = torch._C.DispatchKey.Autograd
    original = func.py_kernels[key]

    def call(*args: Any, **kwargs: Any) -> Any:
        result = instead(func, args, kwargs)
        return original(*args, **kwargs) if result is NotImplemented else result

    func.py_kernels[key] = call
    func._dispatch_cache.clear()


def redirect_hop_compilation(instead: Callable[..., Any]) -> None:
    """Ask `instead(function, args, kwargs)` before torch compiles a call of `torch.cond` or its like.

    It answers NotImplemented where torch is to go on by itself.
    """
    from torch._higher_order_ops import utils

    module: Any = utils
    original = getattr(module, "_hop_compile_and_call", None)
    if original is None:  # before 2.12
        module.setup_compilation_env = _with_first_compile_redirected(module.setup_compilation_env, instead)
        return

    def call(fn: Any, args: Any, kwargs: Any = None) -> Any:
        result = instead(fn, args, kwargs or {})
        return original(fn, args, kwargs) if result is NotImplemented else result

    module._hop_compile_and_call = call


def _with_first_compile_redirected(surround: Any, instead: Callable[..., Any]) -> Callable[[], Any]:
    """The context in which torch compiles a call by `torch.compile`: the first of this thread within it."""

    module: Any = torch

    @contextmanager
    def entered() -> Iterator[Any]:
        owner, compile_by_torch = threading.get_ident(), module.compile

        def compiled(fn: Any, **options: Any) -> Any:
            if threading.get_ident() != owner:
                return compile_by_torch(fn, **options)
            module.compile = compile_by_torch

            def call(*args: Any, **kwargs: Any) -> Any:
                result = instead(fn, args, kwargs)
                return (
                    compile_by_torch(fn, **options)(*args, **kwargs) if result is NotImplemented else result
                )

            return call

        with surround() as backend:
            module.compile = compiled
            try:
                yield backend
            finally:
                module.compile = compile_by_torch

    return entered


def without_empty_mutation_info(
    operator: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """A higher-order operator's arguments; without the operands that `map` writes to, where there are none.

    From 2.14 on it is told of them, here by position although it takes them by name only.
    """
    if operator != "map_impl":
        return args, kwargs
    written = kwargs.get("mutated_arg_indices") or "".join(args[3:])
    return args[:3], {"mutated_arg_indices": written} if written else {}


def indices_from_tensors() -> Any:
    """A context in which `tensor[i]` with a scalar tensor `i` reads no value: flex attention needs it."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # imports Dynamo

    return TransformGetItemToIndex()


@contextmanager
def uncompiled_flex_attention(around: Callable[[], Any]) -> Iterator[None]:
    """Let `flex_attention` call its operator within `around()` and not compile it.

    Does nothing where nobody has imported it.
    """
    module: Any = sys.modules.get("torch.nn.attention.flex_attention")
    if module is None:
        yield
        return
    with replaced(module, _FLEX_ATTENTION_DISABLE_COMPILE_DEBUG=True, setup_compilation_env=around):
        yield


@contextmanager
def allow_flex_gradients_on_cpu() -> Iterator[None]:
    """Let `flex_attention` take CPU tensors that require grad, which torch refuses.

    Code for a GPU has no such limit, and the unfused implementation has a gradient.  Does nothing where
    nobody has imported it.
    """
    module: Any = sys.modules.get("torch.nn.attention.flex_attention")
    if module is None:
        yield
        return
    with replaced(module, _validate_device=lambda query, key, value: None):
        yield
