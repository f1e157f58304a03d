"""Remove the differences that are rounding: those no larger than eager's own error.

Eager's error is its distance from double precision or, where the call cannot be made in double precision, how
far its results move when its inputs change in their last digit: then the compiled values are eager's for
inputs that differ by less than they can express.  Eager's error in one tensor may be small by chance, so its
errors in the other tensors of the call count too.  Invariant: only finite values are accepted, never a NaN or
an infinity that eager does not have, nor any other property of a tensor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from statistics import median

import torch
from torch import Tensor

from aotlens.verify.compare import Difference, Verification
from aotlens.verify.observe import Observation, TensorFacts
from aotlens.verify.tensors.values import as_dense_double as wide_values
from aotlens.verify.tensors.values import error_between, same_non_finite

AS_NEAR = 3.0
"""How many times eager's own error the compiled value may have."""
ROUNDING = 0.05
"""The largest error of eager, relative to the largest value of its tensor, that counts as rounding."""
NEGLIGIBLE = 1e-4
"""The largest error of a gradient, relative to the largest value of its tensor in double precision, that
needs no comparison with eager's.  On the CPU eager adds up batch norm's sums in double precision, and
generated code does not."""
CANCELLED = 1000.0
"""The same limit for a tensor that cancels out, in roundings of the largest value of its kind."""
VALUES = ("value", "mutation", "gradient", "backward mutation")

_Key = tuple[str, str]
_Rounded = tuple[Difference, float, float]
"""A difference, with the compiled value's error and eager's."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What the errors of a call are measured from."""

    values: Mapping[_Key, Tensor]
    """By kind and name of the difference: the value without errors."""
    eagers_errors: Mapping[_Key, float]
    """Eager's largest absolute error in each value."""
    is_double: bool
    """True if the values are those of double precision, False if they are eager's."""


def double_reference(eager: Observation, wide: Observation | None) -> Reference | None:
    """Return the reference in double precision; None if the call could not be made in it."""
    if wide is None or wide.failure is not None or wide.backward_failure is not None:
        return None
    expected, truth = _tensors(eager), _tensors(wide)
    errors = {key: error_between(value, truth[key]) for key, value in expected.items() if key in truth}
    return Reference(truth, errors, is_double=True)


def last_digit_reference(eager: Observation, changed: Sequence[Observation]) -> Reference | None:
    """Return eager's values, and how far they move in calls on inputs that differ in the last digit.

    None if such a call failed, or there is none.
    """
    if not changed or any(side.failure is not None or side.backward_failure is not None for side in changed):
        return None
    expected, moved = _tensors(eager), [_tensors(side) for side in changed]
    errors = {
        key: max(error_between(side[key], value) for side in moved)
        for key, value in expected.items()
        if all(key in side for side in moved)
    }
    return Reference(expected, errors, is_double=False)


def without_rounding_differences(
    verification: Verification, sides: tuple[Observation, Observation], reference: Reference | None
) -> Verification:
    """Remove the differences that are rounding; `sides` are the compiled and the eager observation."""
    if reference is None:
        return verification
    actual, expected = map(_tensors, sides)
    usual = _usual_errors(reference)
    remaining, rounded, negligible = list[Difference](), list[_Rounded](), list[_Rounded]()
    for difference in verification.differences:
        key = (difference.kind, difference.name)
        known = key in reference.eagers_errors and key in actual
        if difference.max_abs is None or not known or not same_non_finite(actual[key], expected[key]):
            remaining.append(difference)
            continue
        ours, eagers = error_between(actual[key], reference.values[key]), reference.eagers_errors[key]
        largest = _largest(reference.values[key])
        noise = max(eagers, usual[difference.kind] * largest)
        if ours <= AS_NEAR * min(noise, _rounding(reference.values, key, expected[key].dtype)):
            rounded.append((difference, ours, eagers))
        elif reference.is_double and difference.kind == "gradient" and ours <= NEGLIGIBLE * largest:
            negligible.append((difference, ours / largest, eagers / largest))
        else:
            remaining.append(difference)
    notes = [*verification.notes, *([_note(rounded, reference)] if rounded else [])]
    notes += [_negligible_note(negligible)] if negligible else []
    return replace(verification, differences=tuple(remaining), notes=tuple(notes))


def _usual_errors(reference: Reference) -> dict[str, float]:
    """Return, by kind, the median of eager's errors relative to the largest value of each tensor, at most
    `ROUNDING`.

    A gradient of two numbers may be exact in eager by chance, while others lose three digits.
    """
    errors: dict[str, list[float]] = {}
    for key, error in reference.eagers_errors.items():
        if size := _largest(reference.values[key]):
            errors.setdefault(key[0], []).append(error / size)
    return {kind: min(ROUNDING, median(errors.get(kind, [0.0]))) for kind in VALUES}


def _rounding(values: Mapping[_Key, Tensor], key: _Key, dtype: torch.dtype) -> float:
    """Return the largest error that counts as rounding.

    A tensor that cancels out (the gradient of a bias before a batch norm) has no scale of its own and is
    compared with the others of its kind.
    """
    alike = [_largest(value) for (kind, _), value in values.items() if kind == key[0]]
    cancelled = min(ROUNDING, CANCELLED * torch.finfo(dtype).eps) if dtype.is_floating_point else 0.0
    return max(ROUNDING * _largest(values[key]), cancelled * max(alike))


def _largest(value: Tensor) -> float:
    size = float(wide_values(value).abs().max()) if value.numel() else 0.0
    return size if isfinite(size) else 0.0


def _negligible_note(rounded: Sequence[_Rounded]) -> str:
    """Return one sentence about gradients with errors that are negligible beside their largest values."""
    difference, ours, eagers = max(rounded, key=lambda entry: entry[1])
    what = f"gradient of {difference.name} is"
    if len(rounded) > 1:
        what = f"{len(rounded)} gradients are rounded otherwise than eager's: {difference.name}'s is"
    return f"{what} off from float64 by {ours:.2g} of its largest value, eager's by {eagers:.2g}"


def _note(rounded: Sequence[_Rounded], reference: Reference) -> str:
    """Return one sentence about all rounding differences, with the largest one and eager's error."""
    difference, ours, eagers = max(rounded, key=lambda entry: entry[1] / (entry[2] or entry[1] or 1.0))
    what = f"{difference.kind} of {difference.name}"
    if not reference.is_double:
        others = f" ({len(rounded) - 1} more values by less of it)" if len(rounded) > 1 else ""
        return (
            f"{what} differs by {ours:.2g}{others}, and eager's own by {eagers:.2g} when its inputs change in"
            " their last digit"
        )
    if len(rounded) == 1:
        return f"{what} is as near to float64 as eager's: off by {ours:.2g}, eager by {eagers:.2g}"
    return (
        f"{len(rounded)} values that differ are as near to float64 as eager's: {what} is off by {ours:.2g},"
        f" eager by {eagers:.2g}, the others by less of eager's"
    )


def _tensors(side: Observation) -> dict[_Key, Tensor]:
    """Return every tensor that is compared by value, by the kind and name of its difference."""
    tensors: dict[_Key, Tensor] = {}
    for name, output in zip(side.output_names, side.outputs, strict=True):
        if isinstance(output, TensorFacts):
            tensors["value", name] = output.value
    tensors |= {("mutation", facts.name): facts.value for facts in side.inputs}
    if side.gradients is not None:
        tensors |= {("gradient", name): value for name, value in side.gradients.leaves if value is not None}
    after = zip(side.inputs, side.inputs_after_backward, strict=False)
    return tensors | {("backward mutation", facts.name): value for facts, value in after}
