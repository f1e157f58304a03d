"""Whether a step fits a GPU."""

import pytest

from aotlens.errors import UserError
from aotlens.fit.capacity import CONTEXT_BYTES, RESERVE_BYTES, gpu_fit
from aotlens.model.fit import FitAllocation
from aotlens.view.step_memory.step import gpu_words

GIB = 1 << 30


def held(gib: int) -> tuple[FitAllocation, ...]:
    """One tensor that is alive before the step, and one in it."""
    return (
        FitAllocation(gib * GIB, "parameter", "setup", made=-1, freed=None),
        FitAllocation(GIB, "temporary", "forward", made=0, freed=1),
    )


def test_memory_is_context_and_reserve_and_capacity() -> None:
    fit = gpu_fit(held(2), "t4")
    assert (fit.gpu, fit.memory_bytes, fit.ok) == ("T4", 16 * GIB, True)
    assert fit.capacity_bytes == 16 * GIB - CONTEXT_BYTES - RESERVE_BYTES
    assert (fit.allocated_bytes, fit.reserved_bytes) == (3 * GIB, 3 * GIB)
    assert gpu_words(fit) == "fits T4: 3.0 GiB reserved of 15.2 GiB, 12.2 GiB remain free"


def test_what_is_missing_is_named() -> None:
    fit = gpu_fit(held(20), "t4")
    assert not fit.ok
    assert gpu_words(fit) == "does not fit T4: 21.0 GiB reserved of 15.2 GiB, 5.8 GiB too little"


def test_an_unknown_gpu_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="unknown GPU"):
        gpu_fit(held(1), "h1000000")
