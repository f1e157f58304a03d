"""Why a value is saved or recomputed: a closed list of codes, each with its words.

Invariant: every saved and every recomputed value has exactly one reason, whose `Freedom` says whether the
user can change the decision.
"""

from dataclasses import dataclass
from enum import Enum


class Freedom(Enum):
    """How far the decision about a value can be changed."""

    FORCED = "forced"
    """It cannot: the opposite would be incorrect, or would save no memory."""
    RULE = "rule"
    """A rule of the policy decided; an override can change it."""
    CHOICE = "choice"
    CHEAPER = "cheaper"
    """The solver chose the cheaper option, and can price the other."""
    USER = "user"
    """The user decided."""


@dataclass(frozen=True, slots=True)
class Words:
    """The text and the freedom of a reason."""

    text: str
    """Shown to the user beside the value, so it contains no internal terms."""
    freedom: Freedom


class Reason(Enum):
    """The closed list of reasons; the enum's value is the code in the report."""

    INPUT = "input"
    PARAMETER = "parameter"
    OUTPUT = "output"
    CONSTANT = "constant"
    SIZE = "size"
    RANDOM = "random"
    EFFECT = "effect"
    MUTATED_LATER = "mutated-later"
    BUNDLE = "bundle"
    COSTLY = "costly"
    REDUCTION = "reduction"
    CHECKPOINT_SAVES = "checkpoint-saves"
    REGION = "region"
    CHECKPOINT_GIVES = "checkpoint-gives"
    CHECKPOINT = "checkpoint"
    MAY_CHANGE = "may-change"
    NEEDS_CHANGING = "needs-changing"
    VIEW = "view"
    DEFAULT = "default"
    CHOICE = "choice"
    CHEAPER = "cheaper"
    BUDGET = "budget"
    USER = "user"
    PARTITION_FUNCTION = "partition-function"
    PACKED = "packed"

    @property
    def text(self) -> str:
        return WORDS[self].text

    @property
    def freedom(self) -> Freedom:
        return WORDS[self].freedom


WORDS = {
    Reason.INPUT: Words("an argument, which the caller keeps alive anyway", Freedom.FORCED),
    Reason.PARAMETER: Words("a parameter or buffer, which the module keeps alive anyway", Freedom.FORCED),
    Reason.OUTPUT: Words("an output, which the caller keeps alive anyway", Freedom.FORCED),
    Reason.CONSTANT: Words("a constant, which the compiled function keeps alive anyway", Freedom.FORCED),
    Reason.SIZE: Words("a number, not a tensor", Freedom.FORCED),
    Reason.RANDOM: Words("recomputing it would give other random numbers", Freedom.FORCED),
    Reason.EFFECT: Words("it has a side effect, which must happen once", Freedom.FORCED),
    Reason.MUTATED_LATER: Words("its input is overwritten before the backward", Freedom.FORCED),
    Reason.BUNDLE: Words("a tuple, whose values are saved or recomputed one by one", Freedom.FORCED),
    Reason.COSTLY: Words("expensive to recompute", Freedom.RULE),
    Reason.REDUCTION: Words("much smaller than its inputs", Freedom.RULE),
    Reason.CHECKPOINT_SAVES: Words("the activation checkpoint's policy saves it", Freedom.RULE),
    Reason.REGION: Words("its marked region saves it: all calls share one partition", Freedom.FORCED),
    Reason.CHECKPOINT_GIVES: Words(
        "the input of a later activation checkpoint, saved as in eager", Freedom.RULE
    ),
    Reason.CHECKPOINT: Words("inside an activation checkpoint", Freedom.RULE),
    Reason.MAY_CHANGE: Words(
        "the caller may write to it before the backward, as eager allows", Freedom.FORCED
    ),
    Reason.NEEDS_CHANGING: Words("the caller may write to its input before the backward", Freedom.FORCED),
    Reason.VIEW: Words("a view, which uses no memory of its own", Freedom.FORCED),
    Reason.DEFAULT: Words("the policy `default` saves what the backward reads", Freedom.RULE),
    Reason.CHOICE: Words("the cheapest set of values to save", Freedom.CHOICE),
    Reason.CHEAPER: Words("cheaper to recompute than to save", Freedom.CHOICE),
    Reason.BUDGET: Words("the least recomputation within the memory budget", Freedom.CHOICE),
    Reason.USER: Words("an override in the policy", Freedom.USER),
    Reason.PACKED: Words("a saved value after the caller's saved-tensor hook", Freedom.USER),
    Reason.PARTITION_FUNCTION: Words("the partition function chose it", Freedom.USER),
}
