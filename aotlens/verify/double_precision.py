"""Measure how far eager itself is from the same computation in double precision.

A low-precision value that differs is accepted if the compiled value is as close to the reference as eager's:
both are then roundings of the same number.  Eager's error in one tensor may be small by chance, so its errors
in the other tensors of the call count too.  Invariant: only finite values are accepted, never a NaN or an
infinity that eager does not have, nor any other property of a tensor.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from statistics import median
from typing import Any

import torch
from torch import Tensor

from aotlens.ir.program import is_random_op
from aotlens.torch_api.modes import TorchDispatchMode
from aotlens.torch_api.operators import pytree
from aotlens.verify.compare import Difference, Verification
from aotlens.verify.first_call import observe_alone
from aotlens.verify.observe import Observation, Probe, TensorFacts
from aotlens.verify.tensors.clone import Cloner
from aotlens.verify.tensors.prepared_call import PreparedCall, copies
from aotlens.verify.tensors.same_numbers import Draw, Replay
from aotlens.verify.tensors.values import as_dense_double as wide_values
from aotlens.verify.tensors.values import error_between, same_non_finite

AFFORDABLE_BYTES = 1 << 30
"""Upper limit for the inputs of a call in double precision; larger calls have no reference."""
AS_NEAR = 3.0
"""How many times eager's own error the compiled value may have."""
ROUNDING = 0.05
"""The largest error of eager, relative to the largest value of its tensor, that counts as rounding."""
NEGLIGIBLE = 1e-4
"""The largest error of a gradient, relative to the largest value of its tensor, that needs no comparison with
eager's.  On the CPU eager adds up batch norm's sums in double precision, and generated code does not."""
CANCELLED = 1000.0
"""The same limit for a tensor that cancels out, in roundings of the largest value of its kind."""
WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}
WITHOUT_WRITES = Probe(writes=False)
VALUES = ("value", "mutation", "gradient", "backward mutation")

_Key = tuple[str, str]
_Rounded = tuple[Difference, float, float]
"""A difference, with the compiled value's error and eager's."""


BITS = frozenset({torch.ops.aten.view.dtype})
"""Operators whose dtype argument says how to read bits."""


class Widening(TorchDispatchMode):
    """A mode in which a requested low-precision dtype becomes a wide one, so that `x.float()` is double, and
    random operators repeat the numbers of `replay`, if there is one."""

    supports_higher_order_operators = True

    def __init__(self, replay: Replay | None = None) -> None:
        super().__init__()
        self._replay = replay

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in BITS:
            return func(*args, **(kwargs or {}))
        wide_args, wide_kwargs = pytree.tree_map(_wider, (args, kwargs or {}))
        if self._replay is not None and is_random_op(func):
            return self._replay.result(func, wide_args, wide_kwargs)
        return func(*wide_args, **wide_kwargs)


def _wider(value: Any) -> Any:
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value


def without_rounding_differences(
    verification: Verification, sides: tuple[Observation, Observation], wide: Observation | None
) -> Verification:
    """Remove the differences that are rounding; `sides` are the compiled and the eager observation."""
    if wide is None or wide.failure is not None or wide.backward_failure is not None:
        return verification
    actual, expected, truth = (_tensors(side) for side in (*sides, wide))
    usual = _usual_errors(expected, truth)
    remaining, rounded, negligible = list[Difference](), list[_Rounded](), list[_Rounded]()
    for difference in verification.differences:
        key = (difference.kind, difference.name)
        present = all(key in side for side in (actual, expected, truth))
        if difference.max_abs is None or not present or not same_non_finite(actual[key], expected[key]):
            remaining.append(difference)
            continue
        ours, eagers = (error_between(side[key], truth[key]) for side in (actual, expected))
        largest = _largest(truth[key])
        noise = max(eagers, usual[difference.kind] * largest)
        if ours <= AS_NEAR * min(noise, _rounding(truth, key, expected[key].dtype)):
            rounded.append((difference, ours, eagers))
        elif difference.kind == "gradient" and ours <= NEGLIGIBLE * largest:
            negligible.append((difference, ours / largest, eagers / largest))
        else:
            remaining.append(difference)
    notes = [*verification.notes, *([_note(rounded)] if rounded else [])]
    notes += [_negligible_note(negligible)] if negligible else []
    return replace(verification, differences=tuple(remaining), notes=tuple(notes))


def _usual_errors(expected: dict[_Key, Tensor], truth: dict[_Key, Tensor]) -> dict[str, float]:
    """Return, by kind, the median of eager's errors relative to the largest value of each tensor, at most
    `ROUNDING`.

    A gradient of two numbers may be exact in eager by chance, while others lose three digits.
    """
    errors: dict[str, list[float]] = {}
    for key, value in expected.items():
        size = _largest(truth[key]) if key in truth else 0.0
        if size:
            errors.setdefault(key[0], []).append(error_between(value, truth[key]) / size)
    return {kind: min(ROUNDING, median(errors.get(kind, [0.0]))) for kind in VALUES}


def _rounding(truth: dict[_Key, Tensor], key: _Key, dtype: torch.dtype) -> float:
    """Return the largest error that counts as rounding.

    A tensor that cancels out (the gradient of a bias before a batch norm) has no scale of its own and is
    compared with the others of its kind.
    """
    alike = [_largest(value) for (kind, _), value in truth.items() if kind == key[0]]
    cancelled = min(ROUNDING, CANCELLED * torch.finfo(dtype).eps) if dtype.is_floating_point else 0.0
    return max(ROUNDING * _largest(truth[key]), cancelled * max(alike))


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


def _note(rounded: Sequence[_Rounded]) -> str:
    """Return one sentence about all rounding differences, with the largest one and eager's error."""
    difference, ours, eagers = max(rounded, key=lambda entry: entry[1] / (entry[2] or entry[1]))
    what = f"{difference.kind} of {difference.name}"
    if len(rounded) == 1:
        return f"{what} is as near to float64 as eager's: off by {ours:.2g}, eager by {eagers:.2g}"
    return (
        f"{len(rounded)} values that differ are as near to float64 as eager's: {what} is off by {ours:.2g},"
        f" eager by {eagers:.2g}, the others by less of eager's"
    )


def in_double(
    prepared: PreparedCall, call: Callable[..., Any], numbers: Sequence[Draw] | None = None
) -> Observation | None:
    """Observe the same call in double precision; None if it needs too much memory or cannot be made.

    A callable that holds tensors itself is copied with them; for any other, `call` is used.  `numbers` are
    the random numbers that it draws in its own precision; None if it draws none.
    """
    wide = copy_in_double(prepared)
    if wide is None:
        return None
    replay = None if numbers is None else Replay(numbers)
    with Widening(replay):
        observation = observe_alone(wide, WITHOUT_WRITES, call if wide.fn is prepared.fn else None)
    return observation if replay is None or replay.is_complete else None


def copy_in_double(prepared: PreparedCall) -> PreparedCall | None:
    """Return the arguments in double precision; None if they need too much memory or cannot be made."""
    if not _is_affordable(prepared):
        return None
    try:
        (wide,) = copies(prepared, 1, cloner=WideCloner)
    except (RuntimeError, TypeError, ValueError):  # a view that exists in one dtype only
        return None
    return wide


def _is_affordable(prepared: PreparedCall) -> bool:
    """Return True if there is memory for all inputs in double precision."""
    return sum(item.tensor.untyped_storage().nbytes() for item in _storages(prepared)) <= AFFORDABLE_BYTES


def _storages(prepared: PreparedCall) -> list[Any]:
    return [
        item for item in prepared.inputs if item.tensor.layout == torch.strided and not item.tensor.is_meta
    ]


class WideCloner(Cloner):
    """Copies tensors with floating-point values in double precision."""

    def _on_own_storage(self, original: Tensor) -> Tensor:
        dtype = WIDER.get(original.dtype)
        if dtype is None:
            return super()._on_own_storage(original)
        storage = original.untyped_storage()
        if storage._cdata not in self._storages:
            whole = torch.empty(0, dtype=original.dtype, device=original.device)
            with torch.no_grad():
                whole.set_(storage, 0, (storage.nbytes() // original.element_size(),), (1,))
            self._storages[storage._cdata] = whole.to(dtype).untyped_storage()
            self._originals.append(storage)
        geometry = (original.storage_offset(), original.size(), original.stride())
        plain = torch.empty(0, dtype=dtype, device=original.device)
        with torch.no_grad():
            plain.set_(self._storages[storage._cdata], *geometry)
            plain = plain.neg() if original.is_neg() else plain
            return plain.conj() if original.is_conj() else plain


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
