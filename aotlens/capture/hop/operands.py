"""The operands with which each higher-order operator calls its functions.

Invariant: a function is called with tensors of the sizes, dtypes and devices that the operator passes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

OperandsOfSubgraphs = list[tuple[str, Any, tuple[Any, ...]]]
"""For each function: its name in the module text, the function, and example inputs."""


def _cond(predicate: Any, true: Any, false: Any, operands: Sequence[Any] = ()) -> OperandsOfSubgraphs:
    return [("if_true", true, tuple(operands)), ("if_false", false, tuple(operands))]


def _while_loop(
    condition: Any, step: Any, carried: Sequence[Any], more: Sequence[Any], **_: Any
) -> OperandsOfSubgraphs:
    inputs = (*carried, *more)
    return [("loop_condition", condition, inputs), ("loop_body", step, inputs)]


def _map(step: Any, mapped: Sequence[Any], more: Sequence[Any], *_: Any, **__: Any) -> OperandsOfSubgraphs:
    return [("map_body", step, (*_slices(mapped), *more))]


def _scan(
    step: Any, init: Sequence[Any], mapped: Sequence[Any], more: Sequence[Any] = ()
) -> OperandsOfSubgraphs:
    return [("scan_body", step, (*init, *_slices(mapped), *more))]


def _associative_scan(combine: Any, mapped: Sequence[Any], more: Sequence[Any] = ()) -> OperandsOfSubgraphs:
    return [("combine", combine, (*_slices(mapped), *_slices(mapped), *more))]


def _invoke_subgraph(subgraph: Any, identifier: Any, *operands: Any) -> OperandsOfSubgraphs:
    return [("subgraph", subgraph, operands)]


def _on_operands(subgraph: Any, *operands: Any, **_: Any) -> OperandsOfSubgraphs:
    return [("subgraph", subgraph, operands)]


def _hints(body: Any, args: Sequence[Any], kwargs: dict[str, Any], hints: Any = None) -> OperandsOfSubgraphs:
    return [("hinted", body, tuple(args))]


def _flex(query: Any, *rest: Any) -> OperandsOfSubgraphs:
    score, mask = rest[2], rest[3][-1]
    for_score, for_mask = _flex_buffers(rest[6:])
    indices = _indices(query)
    return [
        ("score", score, (query.new_zeros(()), *indices, *for_score)),
        ("mask", mask, (*indices, *for_mask)),
    ]


def _flex_backward(query: Any, *rest: Any) -> OperandsOfSubgraphs:
    score, joint, mask = rest[6], rest[7], rest[8][-1]
    for_score, for_mask = _flex_buffers(rest[11:])
    indices, number = _indices(query), query.new_zeros(())
    subgraphs: OperandsOfSubgraphs = [("score", score, (number, *indices, *for_score))]
    if joint is not None:
        subgraphs.append(("score_backward", joint, (number, *indices, number, *for_score)))
    return [*subgraphs, ("mask", mask, (*indices, *for_mask))]


def _flex_buffers(buffers: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    for_score = tuple(buffers[0]) if buffers else ()
    return for_score, tuple(buffers[1]) if len(buffers) > 1 else ()


def _indices(query: Any) -> tuple[Any, ...]:
    """Return batch, head, row and column."""
    return tuple(query.new_zeros((), dtype=torch.int) for _ in range(4))


def _slices(mapped: Sequence[Any]) -> list[Any]:
    return [torch.select_copy(tensor, 0, 0) for tensor in mapped]


OPERANDS_BY_OPERATOR: dict[str, Callable[..., OperandsOfSubgraphs]] = {
    "associative_scan": _associative_scan,
    "cond": _cond,
    "flex_attention": _flex,
    "flex_attention_backward": _flex_backward,
    "hints_wrapper": _hints,
    "invoke_quant": _on_operands,
    "invoke_quant_packed": _on_operands,
    "invoke_subgraph": _invoke_subgraph,
    "map_impl": _map,
    "scan": _scan,
    "while_loop": _while_loop,
    "while_loop_stack_output": _while_loop,
}
"""By operator."""

ONE_OUTPUT = frozenset({"loop_condition", "mask", "score"})
"""Functions that return one tensor; all others return a flat tuple."""

SHARED_OPERANDS = {"associative_scan": 2, "cond": 3, "map_impl": 2, "scan": 3, "while_loop": 3}
"""By operator: the argument with operands that every step receives unchanged."""


def with_extra_operands(operator: str, args: tuple[Any, ...], more: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the operator's arguments with further operands appended."""
    if not more:
        return args
    position = SHARED_OPERANDS[operator]
    return (*args[:position], (*args[position], *more), *args[position + 1 :])
