"""How far eager itself is from the same computation in double precision.

A value of few bits that differs is excused where the compiled one is as near to that reference as eager's:
then both are roundings of the same number.  Eager's error in one tensor may be small by luck, so its error in
the other tensors of the call counts too.  Invariant: only finite values are excused,
never a NaN or an infinity that eager does not have, nor a fact about a tensor.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from statistics import median
from typing import Any

import torch
from torch import Tensor

from aotlens.torch_api.modes import TorchDispatchMode
from aotlens.torch_api.operators import pytree
from aotlens.verify.compare import Difference, Verification
from aotlens.verify.first_call import observe_alone
from aotlens.verify.observe import Observation, Probe, TensorFacts
from aotlens.verify.tensors.clone import Cloner
from aotlens.verify.tensors.prepared_call import PreparedCall, copies
from aotlens.verify.tensors.values import as_dense_double as wide_values
from aotlens.verify.tensors.values import error_between, same_non_finite

AFFORDABLE_BYTES = 1 << 30
"""The most that all inputs of a call may take for it to be run in double precision too."""
AS_NEAR = 3.0
"""How many times eager's own error the compiled value may have."""
ROUNDING = 0.05
"""The most of eager's error, as a part of its tensor's largest value, that is taken for rounding."""
CANCELLED = 1000.0
"""The same for a tensor that cancels out, in roundings of the largest value of its kind."""
WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}
VALUES = ("value", "mutation", "gradient", "backward mutation")

_Key = tuple[str, str]


BITS = frozenset({torch.ops.aten.view.dtype})
"""Operators for which a type says how to read bits."""


class Widening(TorchDispatchMode):
    """Within it, operators that are asked for a type of few bits give a wide one: `x.float()` is double."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in BITS:
            return func(*args, **(kwargs or {}))
        wide_args, wide_kwargs = pytree.tree_map(_wider, (args, kwargs or {}))
        return func(*wide_args, **wide_kwargs)


def _wider(value: Any) -> Any:
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value


def without_rounding_differences(
    verification: Verification, sides: tuple[Observation, Observation], wide: Observation | None
) -> Verification:
    """Without the differences that are rounding; `sides` are what the compiled call and eager gave."""
    if wide is None or wide.failure is not None or wide.backward_failure is not None:
        return verification
    actual, expected, truth = (_tensors(side) for side in (*sides, wide))
    usual = _usual_errors(expected, truth)
    remaining, rounded = list[Difference](), list[tuple[Difference, float, float]]()
    for difference in verification.differences:
        key = (difference.kind, difference.name)
        present = all(key in side for side in (actual, expected, truth))
        if difference.max_abs is None or not present or not same_non_finite(actual[key], expected[key]):
            remaining.append(difference)
            continue
        ours, eagers = (error_between(side[key], truth[key]) for side in (actual, expected))
        noise = max(eagers, usual[difference.kind] * _largest(truth[key]))
        if ours <= AS_NEAR * min(noise, _rounding(truth, key, expected[key].dtype)):
            rounded.append((difference, ours, eagers))
        else:
            remaining.append(difference)
    notes = (*verification.notes, *([_note(rounded)] if rounded else []))
    return replace(verification, differences=tuple(remaining), notes=notes)


def _usual_errors(expected: dict[_Key, Tensor], truth: dict[_Key, Tensor]) -> dict[str, float]:
    """By kind, the median of eager's errors, as parts of their tensors' largest values; at most `ROUNDING`.

    A gradient of two numbers may be exact in eager by chance, where those beside it have lost three digits.
    """
    errors: dict[str, list[float]] = {}
    for key, value in expected.items():
        size = _largest(truth[key]) if key in truth else 0.0
        if size:
            errors.setdefault(key[0], []).append(error_between(value, truth[key]) / size)
    return {kind: min(ROUNDING, median(errors.get(kind, [0.0]))) for kind in VALUES}


def _rounding(truth: dict[_Key, Tensor], key: _Key, dtype: torch.dtype) -> float:
    """The most of an error that is rounding.

    A tensor that cancels out (the gradient of a bias before a batch norm) has no size of its own and is held
    against the others of its kind.
    """
    alike = [_largest(value) for (kind, _), value in truth.items() if kind == key[0]]
    cancelled = min(ROUNDING, CANCELLED * torch.finfo(dtype).eps) if dtype.is_floating_point else 0.0
    return max(ROUNDING * _largest(truth[key]), cancelled * max(alike))


def _largest(value: Tensor) -> float:
    size = float(wide_values(value).abs().max()) if value.numel() else 0.0
    return size if isfinite(size) else 0.0


def _note(rounded: Sequence[tuple[Difference, float, float]]) -> str:
    """One sentence on all differences that are rounding, which shows the largest beside eager's error."""
    difference, ours, eagers = max(rounded, key=lambda entry: entry[1] / (entry[2] or entry[1]))
    what = f"{difference.kind} of {difference.name}"
    if len(rounded) == 1:
        return f"{what} is as near to float64 as eager's: off by {ours:.2g}, eager by {eagers:.2g}"
    return (
        f"{len(rounded)} values that differ are as near to float64 as eager's: {what} is off by {ours:.2g},"
        f" eager by {eagers:.2g}, the others by less of eager's"
    )


def in_double(prepared: PreparedCall, call: Callable[..., Any]) -> Observation | None:
    """The same call in double precision; None where it takes too much memory or cannot be made.

    A callable that holds tensors itself is copied with them; any other is `call`.
    """
    wide = copy_in_double(prepared)
    if wide is None:
        return None
    with Widening():
        observation = observe_alone(wide, Probe(writes=False), call if wide.fn is prepared.fn else None)
    return None if observation.uses_random else observation  # other numbers are drawn in double


def copy_in_double(prepared: PreparedCall) -> PreparedCall | None:
    """The same arguments in double precision; None where they take too much memory or cannot be made."""
    if not _is_affordable(prepared):
        return None
    try:
        (wide,) = copies(prepared, 1, cloner=WideCloner)
    except (RuntimeError, TypeError, ValueError):  # a view that exists in one dtype only
        return None
    return wide


def _is_affordable(prepared: PreparedCall) -> bool:
    """Whether there is memory for all inputs in double precision."""
    return sum(item.tensor.untyped_storage().nbytes() for item in _storages(prepared)) <= AFFORDABLE_BYTES


def _storages(prepared: PreparedCall) -> list[Any]:
    return [
        item for item in prepared.inputs if item.tensor.layout == torch.strided and not item.tensor.is_meta
    ]


class WideCloner(Cloner):
    """Copies whose floats are in double precision."""

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
    """Everything that was compared by value, under the kind and name of a difference."""
    tensors: dict[_Key, Tensor] = {}
    for name, output in zip(side.output_names, side.outputs, strict=True):
        if isinstance(output, TensorFacts):
            tensors["value", name] = output.value
    tensors |= {("mutation", facts.name): facts.value for facts in side.inputs}
    if side.gradients is not None:
        tensors |= {("gradient", name): value for name, value in side.gradients.leaves if value is not None}
    after = zip(side.inputs, side.inputs_after_backward, strict=False)
    return tensors | {("backward mutation", facts.name): value for facts, value in after}
