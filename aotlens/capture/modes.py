"""Modes and settings of a recording, and how the caller's modes are restored.

Invariant: none of the caller's modes reaches the recording, and none of the function's changes outlives it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from aotlens.capture.autograd.saved_tensor_hooks import SavedValues
from aotlens.capture.operators import Decompositions
from aotlens.ir.program import Program
from aotlens.ir.regions import Region
from aotlens.model.report import Span
from aotlens.options import SideEffects
from aotlens.torch_api.fake.tensors import FakeTensorMode
from aotlens.torch_api.saved_tensor_hooks import replace_saved_tensor_hooks
from aotlens.unsupported import unsupported


@dataclass(frozen=True, slots=True)
class Modes:
    """Modes that a function may change, except grad mode."""

    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    """For each device type: whether autocast is on, and its dtype."""
    default_dtype: torch.dtype
    deterministic: bool

    @property
    def casts(self) -> bool:
        return any(enabled for _, enabled, _ in self.autocast)


AUTOCAST_DEVICES = ("cpu", "cuda")
"""The device types whose autocast a function may change: torch has a state for each."""


def current_modes() -> Modes:
    return Modes(
        tuple(
            (device_type, torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type))
            for device_type in AUTOCAST_DEVICES
        ),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )


def set_modes(modes: Modes) -> None:
    for device_type, enabled, dtype in modes.autocast:
        torch.set_autocast_enabled(device_type, enabled)
        torch.set_autocast_dtype(device_type, dtype)
    torch.set_default_dtype(modes.default_dtype)
    torch.use_deterministic_algorithms(modes.deterministic)


def check_modes_restored(before: Modes, span: Span | None) -> None:
    """Restore every mode.

    Raises:
        UnsupportedError: the function left one of them changed.
    """
    after = current_modes()
    if after == before:
        return
    set_modes(before)
    changed = "the autocast state" if after.autocast != before.autocast else "the default dtype"
    if after.deterministic != before.deterministic:
        changed = "deterministic mode"
    raise unsupported("mode-left-changed", span, mode=changed)


@contextmanager
def isolated_from_caller(saved: SavedValues) -> Iterator[None]:
    """Hide the fake tensors from the caller's saved-tensor hooks and anomaly mode in the block.

    Both apply when the compiled function runs; `saved` replaces the hooks.
    """
    anomaly, check_nan = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    if anomaly:
        torch.set_anomaly_enabled(False)
    try:
        with replace_saved_tensor_hooks(saved.pack, saved.unpack):
            yield
    finally:
        if anomaly:
            torch.set_anomaly_enabled(True, check_nan)


SplitRegion = Callable[[Program], Region]
"""Splits the joint program of a marked region into forward and backward."""


@dataclass(frozen=True, slots=True)
class Settings:
    fake_mode: FakeTensorMode
    decompositions: Decompositions
    dynamic: bool = False
    """Whether sizes are symbols."""
    symbolic_numbers: bool = False
    """Whether integer arguments are symbols too."""
    observe_variables: bool = False
    side_effects: SideEffects = SideEffects.REPLAYED
    split_region: SplitRegion | None = None
    """Uses the partition policy of the whole graph; None leaves a marked region's gradient to torch."""
