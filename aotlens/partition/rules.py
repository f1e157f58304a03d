"""The rules that decide whether a forward value is saved or recomputed.

Invariant: a rule depends on the value alone, so one row of RULES explains it in the editor; values that match
no rule are decided by the minimum cut.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch
from torch import Tag

from aotlens.ir.origin import CheckpointMark
from aotlens.ir.program import Node, computed_by, getitem, has_effect, is_random_node
from aotlens.ir.slots import SavedForBackward
from aotlens.ir.symbols import SymbolicExpression
from aotlens.partition.reasons import Reason
from aotlens.partition.storages import is_view, is_view_operator, node_bytes
from aotlens.torch_api.hop import invoke_subgraph

aten = torch.ops.aten


class Decision(Enum):
    """What happens with a forward value that the backward needs."""

    SAVE = "save"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class Rule:
    """A decision for the values that match."""

    matches: Callable[[Node], bool]
    decision: Decision
    reason: Reason


CHEAP_PACKETS = frozenset(
    {
        "aten::_softmax",
        "aten::_log_softmax",
        "aten::_to_copy",
        "aten::amax",
        "aten::amin",
        "aten::arange",
        "aten::cat",
        "aten::clone",
        "aten::copy",
        "aten::constant_pad_nd",
        "aten::diagonal_scatter",
        "aten::embedding",
        "aten::empty",
        "aten::empty_like",
        "aten::empty_strided",
        "aten::fill",
        "aten::full",
        "aten::full_like",
        "aten::gather",
        "aten::index",
        "aten::index_select",
        "aten::lift_fresh_copy",
        "aten::logsumexp",
        "aten::masked_fill",
        "aten::mean",
        "aten::native_layer_norm",
        "aten::native_group_norm",
        "aten::new_empty",
        "aten::new_empty_strided",
        "aten::new_full",
        "aten::new_ones",
        "aten::new_zeros",
        "aten::ones",
        "aten::ones_like",
        "aten::repeat",
        "aten::roll",
        "aten::scalar_tensor",
        "aten::select_scatter",
        "aten::slice_scatter",
        "aten::stack",
        "aten::sum",
        "aten::tril",
        "aten::triu",
        "aten::var",
        "aten::var_mean",
        "aten::zeros",
        "aten::zeros_like",
    }
)
"""Operators that cost about one pass over memory, in addition to the pointwise ones."""


@cache
def _cheap_operator(op: Any) -> bool:
    if op is getitem or isinstance(op, SymbolicExpression):
        return True
    schema = getattr(op, "_schema", None)
    if schema is None:
        return False
    if schema.name in CHEAP_PACKETS or schema.name.startswith("prims::"):
        return True
    return Tag.pointwise in op.tags or is_view_operator(op)


def is_random(node: Node) -> bool:
    """Return True if the value is random, or is the boolean form in which a random mask is saved."""
    source = node.args[0] if node.op is aten.ne.Scalar else computed_by(node)
    return type(source) is Node and is_random_node(source)


def is_effect(node: Node) -> bool:
    """Return True if the operator that computes the value has an effect."""
    return has_effect(computed_by(node))


def is_saved_by_region(node: Node) -> bool:
    """Return True if a marked region returns the value for its own backward only."""
    if node.op is not getitem or node.args[0].op is not invoke_subgraph:
        return False
    outputs = node.args[0].args[0].outputs
    return isinstance(outputs[node.args[1]].slot, SavedForBackward)


def is_costly(node: Node) -> bool:
    """Return True if the operator that computes the value costs more than about one pass over memory."""
    return not _cheap_operator(computed_by(node).op)


def has_several_outputs(node: Node) -> bool:
    """Return True if the node has several outputs, each of which is saved or recomputed by itself."""
    return isinstance(node.val, (list, tuple))


def is_number(node: Node) -> bool:
    """Return True if the value is a size or another number, not a tensor or a list of tensors."""
    return not isinstance(node.val, (torch.Tensor, list, tuple))


def shrinks(node: Node) -> bool:
    """Return True if the value is at most a quarter of the largest tensor that it is computed from."""
    if is_view(node) or not isinstance(node.val, torch.Tensor):
        return False
    computed = computed_by(node)
    largest = max((node_bytes(source) for source in computed.inputs()), default=0)
    return 0 < 4 * node_bytes(node) <= largest


def _is_marked(node: Node, *marks: CheckpointMark) -> bool:
    checkpoint = node.origin.checkpoint
    return checkpoint is not None and checkpoint.mark in marks


def is_checkpointed(node: Node) -> bool:
    """Return True if the user's activation checkpoint asks to recompute the value."""
    return _is_marked(node, CheckpointMark.MUST_RECOMPUTE, CheckpointMark.PREFER_RECOMPUTE) and not is_random(
        node
    )


RULES = (
    Rule(lambda node: node.op is None, Decision.SAVE, Reason.INPUT),
    Rule(is_random, Decision.SAVE, Reason.RANDOM),
    Rule(is_effect, Decision.SAVE, Reason.EFFECT),
    Rule(is_checkpointed, Decision.RECOMPUTE, Reason.CHECKPOINT),
    Rule(
        lambda node: _is_marked(node, CheckpointMark.MUST_SAVE) and not is_view(node),
        Decision.SAVE,
        Reason.CHECKPOINT_SAVES,
    ),
    Rule(is_saved_by_region, Decision.SAVE, Reason.REGION),
    Rule(is_view, Decision.RECOMPUTE, Reason.VIEW),
    Rule(is_costly, Decision.SAVE, Reason.COSTLY),
    Rule(shrinks, Decision.SAVE, Reason.REDUCTION),
)
"""The first rule that matches wins."""


def choose(node: Node) -> Rule | None:
    """Return the first rule that matches a forward value; None leaves it to the minimum cut."""
    return next((rule for rule in RULES if rule.matches(node)), None)
