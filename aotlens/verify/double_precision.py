"""Make a call again in double precision, to tell rounding from errors.

Invariant: a requested low-precision dtype becomes a wide one too, so that each value of the call is a double.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from aotlens.ir.program import is_random_op
from aotlens.torch_api.modes import TorchDispatchMode
from aotlens.torch_api.operators import pytree
from aotlens.verify.observe import Observation, Probe, observe_alone
from aotlens.verify.tensors.clone import Cloner, whole_storage
from aotlens.verify.tensors.prepared_call import PreparedCall, copies
from aotlens.verify.tensors.same_numbers import RandomResult, Replay

AFFORDABLE_BYTES = 1 << 30
"""Upper limit for the inputs of a call in double precision; larger calls have no reference."""
WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}
WITHOUT_WRITES = Probe(writes=False)
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


def in_double(
    prepared: PreparedCall,
    call: Callable[..., Any],
    numbers: Sequence[RandomResult] | None = None,
    state: Sequence[Tensor] = (),
) -> Observation | None:
    """Observe the same call in double precision; None if it needs too much memory or cannot be made.

    A callable that holds tensors itself is copied with them; for any other, `call` is used.  `numbers` are
    the random numbers of its run in its own precision; None if it has none.  The `state` tensors are
    restored afterwards.
    """
    wide = copy_in_double(prepared)
    if wide is None:
        return None
    replay = None if numbers is None else Replay(numbers)
    with Widening(replay):
        observation = observe_alone(wide, WITHOUT_WRITES, call if wide.fn is prepared.fn else None, state)
    return observation if replay is None or replay.is_complete else None


def copy_in_double(prepared: PreparedCall) -> PreparedCall | None:
    """Return the arguments in double precision; None if they need too much memory or cannot be made."""
    if not is_affordable(prepared):
        return None
    try:
        (wide,) = copies(prepared, 1, cloner=WideCloner)
    except (RuntimeError, TypeError, ValueError, AssertionError):  # a view or subclass that rejects the dtype
        return None
    return wide


def is_affordable(prepared: PreparedCall) -> bool:
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
            self._storages[storage._cdata] = whole_storage(storage, original).to(dtype).untyped_storage()
            self._originals.append(storage)
        geometry = (original.storage_offset(), original.size(), original.stride())
        plain = torch.empty(0, dtype=dtype, device=original.device)
        with torch.no_grad():
            plain.set_(self._storages[storage._cdata], *geometry)
            plain = plain.neg() if original.is_neg() else plain
            return plain.conj() if original.is_conj() else plain
