"""Walks over autograd's own graph.

Invariant: every node is met once, depth first from the last start.
"""

from collections.abc import Iterable, Iterator
from typing import Any


def autograd_nodes(starts: Iterable[Any], ends: Iterable[Any] = ()) -> Iterator[Any]:
    """The starts and all that they lead to, up to the ends; None is passed over."""
    waiting = list(starts)
    seen: set[Any] = set(ends)
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend(following for following, _ in node.next_functions)
