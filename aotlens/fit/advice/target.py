"""What a search for edits looks for: a limit of the peak, or of what the GPU's allocator reserves."""

from dataclasses import dataclass

from aotlens.model.fit import Fit, FitPhase

__all__ = ["Goal", "PeakTarget", "excess_by_phase"]


@dataclass(frozen=True, slots=True)
class PeakTarget:
    """The bytes that a plan must not exceed."""

    size_bytes: int
    is_reserved: bool = False
    """Whether they limit what the GPU's allocator reserves, instead of the peak."""

    def bytes_of(self, fit: Fit) -> int:
        """Return the bytes of a run that the target limits."""
        if self.is_reserved and fit.fits is not None:
            return fit.fits.reserved_bytes
        return fit.step_peak_bytes

    def is_reached(self, fit: Fit) -> bool:
        return self.bytes_of(fit) <= self.size_bytes

    def peak_limit(self, fit: Fit) -> int:
        """Return the peak at which the run would reach the target."""
        return self.size_bytes - (self.bytes_of(fit) - fit.step_peak_bytes)

    def excess_bytes(self, fit: Fit) -> int:
        """Return the bytes above the target, added up over the lines of each phase: 0 if it is reached.

        An edit of one line helps although another line needs as much, because another edit lowers that.
        """
        excess = excess_by_phase(fit, self.peak_limit(fit))
        return max(sum(excess.values()), self.bytes_of(fit) - self.size_bytes, 0)


def excess_by_phase(fit: Fit, limit_bytes: int) -> dict[FitPhase, int]:
    """Return the bytes above a limit at the highest point of each line, added up over a phase's lines."""
    highest: dict[tuple[FitPhase, int | None], int] = {}
    for point in fit.curve:
        key = point.phase, None if point.span is None else point.span.line
        highest[key] = max(highest.get(key, 0), point.live_bytes)
    excess: dict[FitPhase, int] = {}
    for (phase, _), live_bytes in highest.items():
        if live_bytes > limit_bytes:
            excess[phase] = excess.get(phase, 0) + live_bytes - limit_bytes
    return excess


@dataclass(frozen=True, slots=True)
class Goal:
    """What the search looks for."""

    target: PeakTarget | None
    """None for advice only."""
    is_whole: bool = True
    """Compare the training with each edit, not only with those of the plan."""
