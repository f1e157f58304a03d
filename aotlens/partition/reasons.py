"""Why a value is saved or recomputed: a closed list of codes, each with its words.

Invariant: every saved and every recomputed value has exactly one reason, whose `Freedom` says whether the
user can change the decision.
"""

from enum import Enum


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
