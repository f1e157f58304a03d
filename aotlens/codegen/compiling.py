"""Which graph a compiler is at work on, for compilers that name what they write after it.

Invariant: outside of a compiler's call no graph is named.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

MODEL = "model"
"""The first part of every name, as `functorch.compile` has it."""

_ids = count()
_work: dict[str, list[str]] = {"now": []}
_done: dict[str, int] = {"graphs": 0}


def next_id() -> int:
    """The number of a function that is compiled, which its graphs share."""
    return next(_ids)


@contextmanager
def at_work(function: int, role: str) -> Iterator[None]:
    """Around the call of a compiler: `role` is `forward`, `backward` or `inference`."""
    before, _work["now"] = _work["now"], [f"{function}_{role}"]
    try:
        yield
    finally:
        _work["now"] = before
        _done["graphs"] += 1


def get_aot_compilation_context() -> tuple[list[str], str, int]:
    """The graph that is compiled (none outside of a compiler), the model's name, and how many came before."""
    return list(_work["now"]), MODEL, _done["graphs"]


def get_aot_graph_name() -> str:
    """A name for the graph that is compiled: `model__0_forward_0`."""
    return f"{MODEL}__{'_'.join(_work['now'])}_{_done['graphs']}"


get_graph_being_compiled = get_aot_graph_name
