"""Higher-order operators, and effects that are kept in order."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._higher_order_ops.effects import _get_effect

make_token: Callable[[], Any] = torch.ops.prims._make_token.default

sink_tokens: Callable[[Any], None] = torch.ops.prims._sink_tokens.default
"""Begin and end of a chain of `with_effects` in a graph for Inductor."""


def has_ordered_effect(func: Any) -> bool:
    """Whether a call is seen outside of its results (it prints, or is registered so)."""
    return _get_effect(func) is not None


def replace_compilation_in_higher_order(instead: Callable[..., Any]) -> None:
    """Ask `instead(function, args, kwargs)` before torch compiles a call of `torch.cond` or its like.

    It answers NotImplemented where torch is to go on by itself.
    """
    from torch._higher_order_ops import utils

    original = utils._hop_compile_and_call

    def call(fn: Any, args: Any, kwargs: Any = None) -> Any:
        result = instead(fn, args, kwargs or {})
        return original(fn, args, kwargs) if result is NotImplemented else result

    utils._hop_compile_and_call = call


def indexing_by_tensors() -> Any:
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
    before = module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, module.setup_compilation_env
    module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, module.setup_compilation_env = True, around
    try:
        yield
    finally:
        module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, module.setup_compilation_env = before
