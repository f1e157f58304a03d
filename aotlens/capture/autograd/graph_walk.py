"""Walks over autograd's own graph.

Invariant: every node is met once.
"""

from collections.abc import Iterable, Iterator
from typing import Any


def grad_fn_of(tensor: Any) -> Any:
    """The tensor's `grad_fn`; None where autograd refuses to tell it, for a view past a write or a change."""
    try:
        return tensor.grad_fn
    except (RuntimeError, ValueError):
        return None


def autograd_nodes(starts: Iterable[Any], ends: Iterable[Any] = ()) -> Iterator[Any]:
    """The starts and all they lead to, up to the ends, depth first from the last; None is passed over."""
    waiting = list(starts)
    seen: set[Any] = set(ends)
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend(following for following, _ in node.next_functions)


def nodes_in_order(starts: Iterable[Any]) -> Iterator[Any]:
    """The starts and all that they lead to, each after all that lead to it."""
    finished: list[Any] = []
    seen: set[Any] = set()
    waiting = [(start, False) for start in starts]
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
    return reversed(finished)
