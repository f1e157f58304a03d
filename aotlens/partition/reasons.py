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
    Reason.INPUT: Words("an argument, which its owner keeps", Freedom.FORCED),
    Reason.PARAMETER: Words("a parameter or buffer, which the module keeps", Freedom.FORCED),
    Reason.OUTPUT: Words("a result, which the caller keeps", Freedom.FORCED),
    Reason.CONSTANT: Words("a constant, which the compiled function keeps", Freedom.FORCED),
    Reason.SIZE: Words("a number, kept as such", Freedom.FORCED),
    Reason.RANDOM: Words("a second draw would differ", Freedom.FORCED),
    Reason.EFFECT: Words("what it does is done once", Freedom.FORCED),
    Reason.MUTATED_LATER: Words("what it is computed from has changed by then", Freedom.FORCED),
    Reason.BUNDLE: Words("several values at once, of which each is kept or not", Freedom.FORCED),
    Reason.COSTLY: Words("slow to compute again", Freedom.RULE),
    Reason.REDUCTION: Words("small beside what it is computed from", Freedom.RULE),
    Reason.CHECKPOINT_SAVES: Words("the activation checkpoint's policy keeps it", Freedom.RULE),
    Reason.REGION: Words("its region keeps it: divided once, for all calls alike", Freedom.FORCED),
    Reason.CHECKPOINT_GIVES: Words("a later activation checkpoint is given it, as in eager", Freedom.RULE),
    Reason.CHECKPOINT: Words("inside an activation checkpoint", Freedom.RULE),
    Reason.MAY_CHANGE: Words("the caller may change it until then, which eager allows", Freedom.FORCED),
    Reason.NEEDS_CHANGING: Words("what it is computed from may be changed by the caller", Freedom.FORCED),
    Reason.VIEW: Words("a view holds no memory of its own", Freedom.FORCED),
    Reason.DEFAULT: Words("the policy `default` saves what the backward reads", Freedom.RULE),
    Reason.CHOICE: Words("the cheapest set of values that gives all the others", Freedom.CHOICE),
    Reason.CHEAPER: Words("cheaper to compute again than to keep", Freedom.CHOICE),
    Reason.BUDGET: Words("the least work that fits the memory budget", Freedom.CHOICE),
    Reason.USER: Words("the policy's override says so", Freedom.USER),
    Reason.PACKED: Words("what the caller's hook on saved tensors made of a saved value", Freedom.USER),
    Reason.PARTITION_FUNCTION: Words("the partition function chose it", Freedom.USER),
}
