"""The modes that a call stands in: what of the caller's must not reach the recording, and what of the
function's must not outlive it.

Invariant: after a recording every mode is as before; a function that leaves one changed is refused by name,
but for grad mode, which the module text sets as the function does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from aotlens.capture.saved_values import SavedValues
from aotlens.errors import UnsupportedError
from aotlens.model.report import Span
from aotlens.torch_api.saved_tensor_hooks import replace_saved_tensor_hooks


@dataclass(frozen=True, slots=True)
class Modes:
    """Modes that a function may change; grad mode is kept apart."""

    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    """For each kind of device, whether it is on, and to which type it casts."""
    default_dtype: torch.dtype
    deterministic: bool

    @property
    def casts(self) -> bool:
        return any(enabled for _, enabled, _ in self.autocast)


AUTOCAST_DEVICES = ("cpu", "cuda")


def current_modes() -> Modes:
    return Modes(
        tuple(
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
            for kind in AUTOCAST_DEVICES
        ),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )


def set_modes(modes: Modes) -> None:
    for kind, enabled, dtype in modes.autocast:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)
    torch.set_default_dtype(modes.default_dtype)
    torch.use_deterministic_algorithms(modes.deterministic)


def refuse_changed_modes(before: Modes, span: Span | None) -> None:
    """Put every mode back.

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
    raise UnsupportedError(
        f"a function that leaves {changed} changed", span, "use a `with` block, or change it outside"
    )


@contextmanager
def apart_from_the_caller(saved: SavedValues) -> Iterator[None]:
    """Within it, neither the caller's hooks on saved tensors nor its anomaly mode see the fake tensors.

    Both do their work when the compiled function runs; `saved` has the place of any hooks.
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
