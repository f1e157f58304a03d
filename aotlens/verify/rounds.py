"""Compare one target with eager in several rounds: on its own arguments, then on random ones.

Invariant: each round starts from the same module state, the same random state and its own copies, so that a
difference can be examined with that round's arguments alone.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from aotlens.verify.compare import Verification, compare
from aotlens.verify.double_precision import WITHOUT_WRITES, in_double
from aotlens.verify.last_digit import in_changed_digits
from aotlens.verify.observe import EVERYTHING, Observation, Probe, observe_alone
from aotlens.verify.rounding import (
    Reference,
    double_reference,
    last_digit_reference,
    without_rounding_differences,
)
from aotlens.verify.tensors.prepared_call import PreparedCall, copies, prepare_call
from aotlens.verify.tensors.random_arguments import with_random_values
from aotlens.verify.tensors.same_numbers import RandomRecorder, RandomResult

RANDOM_ROUNDS = 1
"""Rounds on random arguments."""
EAGER_REPEATS = 2
"""How often eager is repeated after a difference, to see whether it agrees with itself."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two sides of a comparison."""

    owner: Callable[..., Any]
    """The callable whose tensors are observed: the user's, or a copy."""
    call: Callable[..., Any]

    def prepared(self, prepared: PreparedCall) -> PreparedCall:
        """Return these arguments with this side's own tensors."""
        return prepare_call(self.owner, prepared.args, prepared.kwargs, prepared.labels)


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a comparison and their shared state."""

    original: PreparedCall
    """The original call, which stays unchanged."""
    eager: Side
    compiled: Side
    state: Sequence[Tensor]
    """Tensors that either side holds itself, restored after each run."""
    positions: Collection[int] | None = None
    """The arguments that random values may replace; None for all."""

    def run(self, prepared: PreparedCall, side: Side, probe: Probe = EVERYTHING) -> Observation:
        (own,) = copies(side.prepared(prepared), 1, keep_fn=True)
        return observe_alone(own, probe, side.call, self.state)


@dataclass(frozen=True, slots=True)
class RoundsVerdict:
    """The verdict and the arguments of the round that it describes."""

    verification: Verification
    arguments: PreparedCall
    eager: Observation


def judge(sides: Sides, fresh: int = RANDOM_ROUNDS) -> RoundsVerdict:
    """Compare round by round until one differs."""
    first = _round(sides, sides.original)
    total = first.verification
    for seed in range(1, fresh + 1) if not (total.differences or first.eager.failure) else ():
        random_round = _round(sides, with_random_values(sides.original, seed, sides.positions))
        if random_round.eager.failure is not None:
            failure = random_round.eager.failure
            note = f"compared on the given arguments alone: eager raises {failure} on random ones"
            return replace(first, verification=replace(total, notes=(*total.notes, note)))
        if random_round.verification.differences:
            return random_round
        total = replace(
            total,
            fresh_rounds=seed,
            max_error=max(total.max_error, random_round.verification.max_error),
            notes=tuple(dict.fromkeys((*total.notes, *random_round.verification.notes))),
        )
    return replace(first, verification=total)


def _round(sides: Sides, prepared: PreparedCall) -> RoundsVerdict:
    expected, actual = sides.run(prepared, sides.eager), sides.run(prepared, sides.compiled)
    verification = _without_harmless(compare(actual, expected))
    if verification.differences:
        verification = replace(verification, nondeterministic=_nondeterminism(sides, prepared, expected))
    in_values = any(difference.max_abs is not None for difference in verification.differences)
    if in_values and not verification.nondeterministic:
        reference = _reference(sides, prepared, expected)
        verification = without_rounding_differences(verification, (actual, expected), reference)
    if prepared is not sides.original:
        verification = replace(verification, on_random=True)
    return RoundsVerdict(verification, prepared, expected)


def _reference(sides: Sides, prepared: PreparedCall, expected: Observation) -> Reference | None:
    """Return what errors are measured from: double precision, or eager where that is impossible."""
    numbers = _numbers(sides, prepared) if expected.uses_random else None
    called = sides.eager.prepared(prepared)
    call, state = sides.eager.call, sides.state
    reference = double_reference(expected, in_double(called, call, numbers, state))
    return reference or last_digit_reference(expected, in_changed_digits(called, call, state))


def _numbers(sides: Sides, prepared: PreparedCall) -> Sequence[RandomResult]:
    """Return the random numbers of eager in the call and its backward."""
    with RandomRecorder() as recorder:
        sides.run(prepared, sides.eager, WITHOUT_WRITES)
    return recorder.numbers


def _without_harmless(verification: Verification) -> Verification:
    """Remove harmless differences and add a note about them."""
    writable = [difference.name for difference in verification.differences if difference.is_harmless]
    if not writable:
        return verification
    remaining = tuple(difference for difference in verification.differences if not difference.is_harmless)
    note = f"{', '.join(writable)} can be written in place, which eager does not allow"
    return replace(verification, differences=remaining, notes=(*verification.notes, note))


def _nondeterminism(sides: Sides, prepared: PreparedCall, expected: Observation) -> str:
    """Return how eager differs from itself on the same arguments; empty if it does not."""
    for _ in range(EAGER_REPEATS):
        comparison = compare(sides.run(prepared, sides.eager), expected)
        if comparison.differences:
            first = comparison.differences[0]
            return f"{first.kind} of {first.name or 'the call'}"
    return ""
