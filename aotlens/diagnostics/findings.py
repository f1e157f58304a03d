"""Shared by all checks of a target: the sizes from which findings are reported, and their locations."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from aotlens.model.report import Diagnostic, Kernel, Related, Severity, Site, Target
from aotlens.model.source import Cost

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The sizes from which on a finding is reported."""

    saved_bytes: int = 8 * MIB
    saved_share: float = 0.1
    """Of all saved bytes of the target."""
    saved_findings: int = 3
    saving_bytes: int = MIB
    """The least bytes, beside `saving_share`, by which a smaller form of one expression's saved values is
    reported."""
    saving_share: float = 0.02
    """Of all saved bytes of the target."""
    copied_bytes: int = MIB
    """From here on a copied argument is a warning, below it information."""
    write_back_bytes: int = 16 * MIB
    view_outputs: int = 4
    spill_bytes: int = 128
    """Registers that a kernel's thread moves through memory: a warning from here on, information below."""
    least_spill_bytes: int = 32
    """Reported from here on: four registers, stored and loaded once."""
    occupancy: float = 0.25
    """Reported below this share of the warps that a GPU can hold."""
    split_bytes: int = 4 * MIB
    """Reported from so many bytes on that a GPU writes and reads again around an unfused operator."""
    sector_bytes: int = 4 * MIB
    """Reported from so many bytes on that a GPU's memory moves in vain beside scattered elements."""
    sector_factor: float = 2.0
    """Reported from this ratio of moved bytes to needed bytes on."""
    step_line_bytes: int = MIB
    """The least bytes, beside `step_line_share`, of a line that is reported for the peak of a step."""
    step_line_share: float = 1 / 3
    """Of the step's peak."""


Check = Callable[[Target, Limits], Iterator[Diagnostic]]


def peak_cost(target: Target, size_bytes: int) -> Cost | None:
    """Bytes that stay alive up to the peak of the target; None where the peak is not known."""
    if target.memory is None or not target.memory.peak_bytes:
        return None
    return Cost("peak bytes", size_bytes, min(1.0, size_bytes / target.memory.peak_bytes))


def copy_cost(target: Target, size_bytes: int) -> Cost | None:
    """Bytes that the wrapper copies on each call, compared with the peak."""
    cost = peak_cost(target, size_bytes)
    return replace(cost, kind="bytes per call") if cost is not None else None


def kernel_cost(target: Target, kernel: Kernel) -> Cost | None:
    """Return the time of a kernel, measured or the floor, and that of all kernels; None where it is not
    known."""
    times_us = [
        other.time_us if other.time_us is not None else other.floor_us or 0.0 for other in target.kernels
    ]
    own_us = kernel.time_us if kernel.time_us is not None else kernel.floor_us
    if not own_us:
        return None
    return Cost("kernel microseconds", own_us, own_us / sum(times_us))


def finding_at(
    sites: tuple[Site, ...], target: Target, code: str, severity: Severity, message: str
) -> Diagnostic:
    """Return a finding at the first site, with the others related; at the target where there is none."""
    if not sites:
        return Diagnostic(code, severity, message, target.span)
    related = tuple(Related(site.span, "also here") for site in sites[1:5])
    return Diagnostic(code, severity, message, sites[0].span, related)
