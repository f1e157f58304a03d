"""Operators: what they are called, which kernels they have, what they are composed of."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from keyword import iskeyword
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverload, OpOverloadPacket, TorchBindOpOverload
from torch.fx.node import _get_qualified_name

from aotlens.torch_api.patches.scopes import around

__all__ = [
    "SYMBOLIC_FUNCTIONS",
    "OpOverload",
    "OpOverloadPacket",
    "TorchBindOpOverload",
    "assert_size_stride",
    "attribute_text",
    "check",
    "composite_kernel",
    "get_decompositions",
    "has_composite_kernel",
    "has_view_tracking_kernel",
    "operator_name",
    "packs_products",
    "python_dispatcher",
    "pytree",
    "qualified_name",
    "tensor_leaves",
]


def tensor_leaves(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in arguments or results, however they are nested."""
    return list(_tensors_in(tree))


def _tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a tree; builtin containers, nearly all there are, need no search by pytree."""
    kind = type(tree)
    if isinstance(tree, torch.Tensor):
        yield tree
    elif kind in (tuple, list, dict):
        for item in tree.values() if kind is dict else tree:
            yield from _tensors_in(item)
    elif isinstance(tree, tuple) or kind in pytree.SUPPORTED_NODES:
        yield from (leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def packs_products(dtype: torch.dtype) -> bool:
    """Return True if oneDNN computes matrix products of this 16-bit dtype on this CPU."""
    if not torch.backends.mkldnn.is_available():
        return False
    operators = torch.ops.mkldnn
    is_half = dtype is torch.float16
    return bool((operators._is_mkldnn_fp16_supported if is_half else operators._is_mkldnn_bf16_supported)())


assert_size_stride: Callable[..., None] = torch._C._dynamo.guards.assert_size_stride
"""The check of outputs of operators in Inductor's wrappers."""


check = torch._check
"""Requires a condition: raises RuntimeError from within torch, as its own kernels do of their arguments.

torch notes a data-dependent condition, and the graph checks it.
"""


SYMBOLIC_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    name: getattr(torch, f"_sym_{name}")
    for name in ("sqrt", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
    if hasattr(torch, f"_sym_{name}")
}
"""Functions of a symbolic number, as graphs call them."""


def has_composite_kernel(func: Any) -> bool:
    """Return True if an operator is only ever a composition of others.

    A few have a composition and a kernel of their own too (`silu_backward`), which is what eager runs.
    """
    has_kernel, keys = torch._C._dispatch_has_kernel_for_dispatch_key, torch._C.DispatchKey
    name = func.name()
    return has_kernel(name, keys.CompositeImplicitAutograd) and not has_kernel(name, keys.CPU)


def qualified_name(function: Any) -> str:
    """Return the dotted name under which Python finds a function of torch; empty where it is unknown."""
    try:
        name = _get_qualified_name(function)
    except (RuntimeError, AttributeError):  # a lambda; an object that is called
        return ""
    return name if "." in name else f"builtins.{name}"


def get_decompositions(operators: list[Any]) -> dict[Any, Callable[..., Any]]:
    """Return torch's own decompositions of some operators."""
    from torch._decomp import get_decompositions as look_up

    return dict(look_up(operators))


def composite_kernel(func: Any) -> Callable[..., Any]:
    """Return an operator as the composition that eager runs, and not as a Python rule of torch."""
    return lambda *args, **kwargs: func._op_dk(
        torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs
    )


def has_view_tracking_kernel(func: Any) -> bool:
    """Whether an operator itself marks its results as views, and leaves that to none that it calls."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "ADInplaceOrView"))


@contextmanager
def python_dispatcher(rules: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """Let operators use their Python kernels, which symbolic sizes need; those of `rules` use that one.

    Not dropout's: in evaluation the operator returns its argument, and the Python kernel a copy.
    """
    from torch._dispatch.python import enable_python_dispatcher

    changed: dict[Any, Any] = {torch.ops.aten.dropout.default: {}}
    for op, rule in rules.items():
        changed[op] = {
            key: rule if str(key) == "DispatchKey.Autograd" else kernel
            for key, kernel in op.py_kernels.items()
        }
    before = {op: dict(op.py_kernels) for op in changed}
    _set_kernels(changed)
    try:
        with enable_python_dispatcher():
            yield
    finally:
        _set_kernels(before)


def _set_kernels(kernels: dict[Any, Any]) -> None:
    """Replace the Python kernels of operators in place."""
    for op, by_key in kernels.items():
        op.py_kernels.clear()
        op.py_kernels.update(by_key)
        op._dispatch_cache.clear()


def attribute_text(path: str) -> str:
    """Return a path of attributes as Python text, also where a name in it is a keyword
    (`aten.random.from`)."""
    text, *rest = path.split(".")
    for name in rest:
        text = f"getattr({text}, {name!r})" if iskeyword(name) else f"{text}.{name}"
    return text


@around
def operator_name(original: Callable[..., str], function: Any) -> str:
    """How the text of fx's graphs names a function: as Python, also where a part is a keyword.

    torch's own text of a call of `aten.random.from` is no Python.
    """
    path = original(function)
    return attribute_text(path) if isinstance(function, OpOverload) else path
