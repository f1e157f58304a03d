"""The operators at the edges of a graph: which computes each output, and which read each input.

Two operators on both sides of a graph break could share a kernel if Inductor compiles both.

| operator | may share a kernel |
|---|---|
| pointwise or reduction by torch's tags, and compositions of these | yes |
| a view | counts as the operators before or behind it |
| matrix products, convolutions, attention, sorts, everything else | no: a kernel of a library's |
"""

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import fx

from aotlens.capture.provenance.frames import is_first_party_file, is_user_file

__all__ = ["EdgeOperator", "GraphEdges", "graph_edges", "may_fuse", "user_line"]

COMPOSITIONS = frozenset(
    (
        *("softmax", "log_softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm"),
        *("cross_entropy", "cross_entropy_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
        *("binary_cross_entropy", "binary_cross_entropy_with_logits", "nll_loss", "normalize"),
        *("hardswish", "hardsigmoid", "glu", "cat", "stack", "to", "float", "double", "half", "bfloat16"),
        *("int", "long", "bool", "contiguous", "floor_divide", "tril", "triu", "dropout"),
        *("sum", "mean", "amax", "amin", "max", "min", "var", "std", "prod", "all", "any", "norm"),
    )
)
"""Functions without one of the tags that Inductor compiles to pointwise code and reductions."""

OF_PYTHON: dict[Callable[..., Any], str] = {
    operator.truediv: "div",
    operator.itruediv: "div",
    operator.floordiv: "floor_divide",
    operator.ifloordiv: "floor_divide",
    operator.mod: "remainder",
    operator.imod: "remainder",
    operator.iadd: "add",
    operator.isub: "sub",
    operator.imul: "mul",
    operator.ipow: "pow",
    operator.and_: "bitwise_and",
    operator.or_: "bitwise_or",
    operator.xor: "bitwise_xor",
    operator.invert: "bitwise_not",
}
"""Python's operators whose name is not that of torch's function."""

_FRAME = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+), in ')


class EdgeOperator(NamedTuple):
    """An operator of a graph."""

    name: str
    """`relu`, as in torch's namespace of operators."""
    stack: str
    """Where Dynamo traced it, as a traceback; empty where it does not say."""


@dataclass(frozen=True, slots=True)
class GraphEdges:
    """The operators beside the inputs and outputs of a graph, in their order."""

    writers: tuple[EdgeOperator | None, ...] = ()
    """None for an output that no operator computes."""
    readers: tuple[tuple[EdgeOperator, ...], ...] = ()


def graph_edges(nodes: Sequence[fx.Node]) -> GraphEdges:
    """Return the operators at the edges of a graph of Dynamo's."""
    results: Any = next((node.args[0] for node in nodes if node.op == "output"), ())
    results = results if isinstance(results, tuple | list) else (results,)
    return GraphEdges(
        tuple(_writer(result) for result in results),
        tuple(tuple(_readers(node)) for node in nodes if node.op == "placeholder"),
    )


def _writer(result: Any) -> EdgeOperator | None:
    """Return the operator that computes an output, or the base of which it is a view."""
    while isinstance(result, fx.Node) and result.op.startswith("call_"):
        name = _name(result)
        if not _is_view(name):
            return _edge_operator(result, name)
        result = result.args[0] if result.args else None
    return None


def _readers(node: fx.Node) -> Iterator[EdgeOperator]:
    for user in node.users:
        if user.op.startswith("call_"):
            name = _name(user)
            if _is_view(name):
                yield from _readers(user)
            else:
                yield _edge_operator(user, name)


def _edge_operator(node: fx.Node, name: str) -> EdgeOperator:
    return EdgeOperator(name, str(node.meta.get("stack_trace") or ""))


def _name(node: fx.Node) -> str:
    target = node.target
    if isinstance(target, str):
        name = target
    else:
        name = OF_PYTHON.get(target) or str(getattr(target, "__name__", target))
    return name if name.startswith("__") else name.removesuffix("_")


@cache
def _overloads(name: str) -> tuple[Any, ...]:
    packet = getattr(torch.ops.aten, name, None)
    return () if packet is None else tuple(getattr(packet, overload) for overload in packet.overloads())


@cache
def _is_view(name: str) -> bool:
    if name in ("getitem", "getattr"):  # `x[0]`, `x.T`
        return True
    returned = [overload._schema.returns for overload in _overloads(name)]
    aliases = [entry[0].alias_info for entry in returned if entry]
    return name not in COMPOSITIONS and any(info is not None and not info.is_write for info in aliases)


@cache
def may_fuse(name: str) -> bool:
    """Return True for an operator that Inductor compiles into one kernel with its neighbours."""
    tags = {torch.Tag.pointwise, getattr(torch.Tag, "reduction", torch.Tag.pointwise)}
    return name in COMPOSITIONS or any(tags & set(overload.tags) for overload in _overloads(name))


def user_line(stack: str) -> tuple[str, int] | None:
    """Return the innermost line of the user's files in a traceback, else of an installed package."""
    lines = [(match["file"], int(match["line"])) for match in _FRAME.finditer(stack)]
    for is_wanted in (is_first_party_file, is_user_file):
        line = next((line for line in reversed(lines) if is_wanted(line[0])), None)
        if line is not None:
            return line
    return None
