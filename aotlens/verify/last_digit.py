"""Make a call again on inputs that differ in their last digit, to tell rounding from errors.

For calls that cannot be made in double precision (torchao's quantized layers reject it): a compiled value is
a rounding of eager's if eager itself moves as far.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from aotlens.verify.double_precision import WITHOUT_WRITES, is_affordable
from aotlens.verify.observe import Observation, observe_alone
from aotlens.verify.tensors.clone import Cloner, whole_storage
from aotlens.verify.tensors.prepared_call import PreparedCall, copies

CALLS = 4
"""How often the inputs are changed: a value next to a step may stay on its side of it."""
CHANGED = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})


def in_changed_digits(
    prepared: PreparedCall, call: Callable[..., Any], state: Sequence[Tensor] = ()
) -> tuple[Observation, ...]:
    """Observe the same call on inputs of which each number is changed by its rounding error, up or down.

    A callable that holds tensors itself is copied with them, and they change too; for any other, `call` is
    used.  Empty if there is not enough memory.  The `state` tensors are restored after each call.
    """
    return tuple(_observations(prepared, call, state)) if is_affordable(prepared) else ()


def _observations(
    prepared: PreparedCall, call: Callable[..., Any], state: Sequence[Tensor]
) -> Iterator[Observation]:
    for seed in range(CALLS):
        (changed,) = copies(prepared, 1, cloner=partial(LastDigitCloner, seed))
        yield observe_alone(changed, WITHOUT_WRITES, call if changed.fn is prepared.fn else None, state)


class LastDigitCloner(Cloner):
    """Copies tensors and changes their floating-point values in the last digit."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def _on_own_storage(self, original: Tensor) -> Tensor:
        storage = original.untyped_storage()
        is_new = storage._cdata not in self._storages
        copy = super()._on_own_storage(original)
        if is_new and original.dtype in CHANGED:
            whole = whole_storage(self._storages[storage._cdata], original)
            with torch.no_grad():
                up = torch.randint(0, 2, whole.shape, generator=self._generator).to(whole.device)
                whole.mul_(1 + (2 * up - 1) * torch.finfo(whole.dtype).eps)
        return copy
