"""The operands with which each higher-order operator calls its functions.

Invariant: a function is called with tensors of the sizes, dtypes and devices that the operator passes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

Args = tuple[Any, ...]
OperandsOfSubgraphs = list[tuple[str, Any, Args]]
"""For each function: its name in the module text, the function, and example inputs."""


def _calls(functions: dict[str, int], operands: Callable[[Args], Sequence[Any]]) -> Callable[..., Any]:
    """Return a row for functions at these positions, by name, which the operator calls with like operands."""

    def row(*args: Any) -> OperandsOfSubgraphs:
        return [(label, args[position], tuple(operands(args))) for label, position in functions.items()]

    return row


def _flex(query: Any, *rest: Any) -> OperandsOfSubgraphs:
    _key, _value, score, (*_, mask), _scale, _options, *buffers = rest
    for_score, for_mask = _flex_buffers(buffers)
    indices = _indices(query)
    return [
        ("score", score, (query.new_zeros(()), *indices, *for_score)),
        ("mask", mask, (*indices, *for_mask)),
    ]


def _flex_backward(query: Any, *rest: Any) -> OperandsOfSubgraphs:
    *_tensors, score, joint, (*_, mask), _scale, _options = rest[:11]
    for_score, for_mask = _flex_buffers(rest[11:])
    indices, number = _indices(query), query.new_zeros(())
    subgraphs: OperandsOfSubgraphs = [("score", score, (number, *indices, *for_score))]
    if joint is not None:
        subgraphs.append(("score_backward", joint, (number, *indices, number, *for_score)))
    return [*subgraphs, ("mask", mask, (*indices, *for_mask))]


def _flex_buffers(buffers: Sequence[Any]) -> tuple[Args, Args]:
    """Return the buffers of the score function and of the mask function, each of which a call may omit."""
    for_score = tuple(buffers[0]) if buffers else ()
    return for_score, tuple(buffers[1]) if len(buffers) > 1 else ()


def _indices(query: Any) -> Args:
    """Return batch, head, row and column."""
    return tuple(query.new_zeros((), dtype=torch.int) for _ in range(4))


def _slices(mapped: Sequence[Any]) -> list[Any]:
    return [torch.select_copy(tensor, 0, 0) for tensor in mapped]


_LOOP = _calls({"loop_condition": 0, "loop_body": 1}, lambda args: (*args[2], *args[3]))

OPERANDS_BY_OPERATOR: dict[str, Callable[..., OperandsOfSubgraphs]] = {
    "associative_scan": _calls(
        {"combine": 0}, lambda args: (*_slices(args[1]), *_slices(args[1]), *_shared(args, 2))
    ),
    "cond": _calls({"if_true": 1, "if_false": 2}, lambda args: _shared(args, 3)),
    "flex_attention": _flex,
    "flex_attention_backward": _flex_backward,
    "hints_wrapper": _calls({"hinted": 0}, lambda args: args[1]),
    "invoke_quant": _calls({"subgraph": 0}, lambda args: args[1:]),
    "invoke_quant_packed": _calls({"subgraph": 0}, lambda args: args[1:]),
    "invoke_subgraph": _calls({"subgraph": 0}, lambda args: args[2:]),
    "map_impl": _calls({"map_body": 0}, lambda args: (*_slices(args[1]), *args[2])),
    "scan": _calls({"scan_body": 0}, lambda args: (*args[1], *_slices(args[2]), *_shared(args, 3))),
    "while_loop": _LOOP,
    "while_loop_stack_output": _LOOP,
}
"""By operator: takes its positional arguments."""

ONE_OUTPUT = frozenset({"loop_condition", "mask", "score"})
"""Functions that return one tensor; all others return a flat tuple."""

SHARED_OPERANDS = {"associative_scan": 2, "cond": 3, "map_impl": 2, "scan": 3, "while_loop": 3}
"""By operator: the argument with operands that every step receives unchanged."""


def _shared(args: Args, position: int) -> Sequence[Any]:
    """Return the operands that a call may omit."""
    operands: Sequence[Any] = args[position] if len(args) > position else ()
    return operands


def with_extra_operands(operator: str, args: Args, more: Args) -> Args:
    """Return the operator's arguments with further operands appended."""
    if not more:
        return args
    position = SHARED_OPERANDS[operator]
    return (*args[:position], (*args[position], *more), *args[position + 1 :])
