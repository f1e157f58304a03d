"""What every check of a target shares: from which sizes on it tells, and where a finding stands."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from aotlens.model.report import Diagnostic, Kernel, Related, Severity, Site, Target
from aotlens.model.source import Cost

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """From which sizes on something is worth telling."""

    saved_bytes: int = 8 * MIB
    saved_share: float = 0.1
    """Of all saved bytes of the target."""
    saved_findings: int = 3
    spare_bytes: int = MIB
    """What a smaller form of one expression's saved values must spare, and at least `spare_share`."""
    spare_share: float = 0.02
    """Of all saved bytes of the target."""
    copied_bytes: int = MIB
    """A copied argument is a warning from here on, information below."""
    write_back_bytes: int = 16 * MIB
    view_outputs: int = 4
    spill_bytes: int = 128
    """Registers that a kernel's thread moves through memory: a warning from here on, information below."""
    least_spill_bytes: int = 32
    """Told from here on: four registers, stored and loaded once."""
    occupancy: float = 0.25
    """Of the warps that a GPU can hold: told below."""
    split_bytes: int = 4 * MIB
    """What a GPU writes and reads again around an operator that nothing is fused with: told from here on."""
    sector_bytes: int = 4 * MIB
    """What a GPU's memory moves for nothing, beside elements that lie apart: told from here on."""
    sector_factor: float = 2.0
    """How many times its own bytes such an access moves: told from here on."""


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
    """The time of a kernel, measured or at least needed, of that of all kernels; None where none is known."""
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
    """At the first site, the others related; at the target where there is none."""
    if not sites:
        return Diagnostic(code, severity, message, target.span)
    related = tuple(Related(site.span, "also here") for site in sites[1:5])
    return Diagnostic(code, severity, message, sites[0].span, related)
