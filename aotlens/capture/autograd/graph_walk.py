"""Walk autograd's graph.

Invariant: every node is visited once.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch


def grad_fn_or_none(tensor: Any) -> Any:
    """Return the tensor's `grad_fn`; None if autograd raises, for a view of a changed tensor.

    `invalid_views.grad_fn_of`, for what later stages read, rejects such a program instead.
    """
    try:
        return tensor.grad_fn
    except (RuntimeError, ValueError):
        return None


def requires_grad(value: Any) -> bool:
    """Return True for a tensor that requires grad."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def may_be_leaf(tensor: Any) -> bool:
    """Return False for a view of what requires grad; `is_leaf` could regenerate its `grad_fn`, or raise."""
    base = tensor._base
    return bool(tensor.is_leaf if base is None else not base.requires_grad)


def autograd_nodes(starts: Iterable[Any], ends: Iterable[Any] = ()) -> Iterator[Any]:
    """Yield the starts and everything reachable from them, depth first, without the ends; None is skipped."""
    waiting = list(starts)
    seen: set[Any] = set(ends)
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend(following for following, _ in node.next_functions)


def autograd_path(grad_fn: Any) -> Iterator[Any]:
    """Yield a `grad_fn` and those that follow as long as each has one next function, as views have.

    The last is None if the path ends in an edge to nothing.
    """
    node = grad_fn
    while True:
        yield node
        if node is None or len(node.next_functions) != 1:
            return
        ((node, _),) = node.next_functions


def saved_values(node: Any) -> Iterator[Any]:
    """Yield what an autograd node has saved, also inside lists.

    Raises:
        RuntimeError: autograd's own, for a tensor that has been freed or written to.
    """
    for name in dir(node):
        if name.startswith("_saved_") or name == "saved_tensors":
            value = getattr(node, name)
            yield from value if isinstance(value, (tuple, list)) else (value,)


def nodes_in_order(starts: Iterable[Any]) -> list[Any]:
    """Return the starts, None left out, and everything reachable from them in topological order.

    Autograd's own numbers do not have this order: it makes the nodes of views again after a write.
    """
    finished: list[Any] = []
    seen: set[Any] = set()
    waiting = [(start, False) for start in starts if start is not None]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            finished.append(node)
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            waiting.extend(
                (following, False) for following, _ in node.next_functions if following is not None
            )
    return finished[::-1]
