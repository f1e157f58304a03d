"""Why a value is saved or recomputed: a closed list of reasons, and the rules that decide without a solver.

Invariants: every saved and every recomputed value has exactly one reason, whose `Freedom` says whether the
user can change the decision.  A rule depends on the value alone, so one row of RULES explains it in the
editor; values that match no rule are decided by the minimum cut.
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
from aotlens.partition.storages import is_view, is_view_operator, node_bytes
from aotlens.torch_api.hop import invoke_subgraph

aten = torch.ops.aten


class Freedom(Enum):
    """How far the decision about a value can be changed."""

    FORCED = "forced"
    """It cannot: the opposite would be incorrect, or would save no memory."""
    RULE = "rule"
    """A rule of the policy decided; an override can change it."""
    CHOICE = "choice"
    """The solver chose the cheaper option, and can price the other."""
    USER = "user"
    """The user decided."""


class Reason(Enum):
    """The closed list of reasons; the enum's value is the code in the report."""

    text: str
    """Shown to the user beside the value, so it contains no internal terms."""
    freedom: Freedom

    def __new__(cls, code: str, text: str, freedom: Freedom) -> "Reason":
        reason = object.__new__(cls)
        reason._value_, reason.text, reason.freedom = code, text, freedom
        return reason

    INPUT = "input", "an argument, which the caller keeps alive anyway", Freedom.FORCED
    PARAMETER = "parameter", "a parameter or buffer, which the module keeps alive anyway", Freedom.FORCED
    OUTPUT = "output", "an output, which the caller keeps alive anyway", Freedom.FORCED
    CONSTANT = "constant", "a constant, which the compiled function keeps alive anyway", Freedom.FORCED
    SIZE = "size", "a number, not a tensor", Freedom.FORCED
    RANDOM = "random", "recomputing it would give other random numbers", Freedom.FORCED
    EFFECT = "effect", "it has a side effect, which must happen once", Freedom.FORCED
    MUTATED_LATER = "mutated-later", "its input is overwritten before the backward", Freedom.FORCED
    BUNDLE = "bundle", "a tuple, whose values are saved or recomputed one by one", Freedom.FORCED
    COSTLY = "costly", "expensive to recompute", Freedom.RULE
    REDUCTION = "reduction", "much smaller than its inputs", Freedom.RULE
    CHECKPOINT_SAVES = "checkpoint-saves", "the activation checkpoint's policy saves it", Freedom.RULE
    REGION = "region", "its marked region saves it: all calls share one partition", Freedom.FORCED
    CHECKPOINT_GIVES = (
        "checkpoint-gives",
        "the input of a later activation checkpoint, saved as in eager",
        Freedom.RULE,
    )
    CHECKPOINT = "checkpoint", "inside an activation checkpoint", Freedom.RULE
    MAY_CHANGE = (
        "may-change",
        "the caller may write to it before the backward, as eager allows",
        Freedom.FORCED,
    )
    NEEDS_CHANGING = "needs-changing", "the caller may write to its input before the backward", Freedom.FORCED
    VIEW = "view", "a view, which uses no memory of its own", Freedom.FORCED
    DEFAULT = "default", "the policy `default` saves what the backward reads", Freedom.RULE
    CHOICE = "choice", "the cheapest set of values to save", Freedom.CHOICE
    CHEAPER = "cheaper", "cheaper to recompute than to save", Freedom.CHOICE
    BUDGET = "budget", "the least recomputation within the memory budget", Freedom.CHOICE
    USER = "user", "an override in the policy", Freedom.USER
    PARTITION_FUNCTION = "partition-function", "the partition function chose it", Freedom.USER
    PACKED = "packed", "a saved value after the caller's saved-tensor hook", Freedom.USER


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
