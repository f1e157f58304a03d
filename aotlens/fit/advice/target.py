"""What a search for edits looks for: a limit of the peak, or of what the GPU's allocator reserves."""

from dataclasses import dataclass

from aotlens.model.fit import Fit

__all__ = ["Goal", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
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
        """Return the bytes above the target, added up over the phases: 0 if it is reached.

        An edit of the forward helps although the optimizer needs as much, because another edit lowers that.
        """
        limit = self.peak_limit(fit)
        phases = sum(max(0, phase.peak_bytes - limit) for phase in fit.phases)
        return max(phases, self.bytes_of(fit) - self.size_bytes, 0)


@dataclass(frozen=True, slots=True)
class Goal:
    """What the search looks for."""

    target: Target | None
    """None for advice only."""
    is_whole: bool = True
    """Compare the training with each edit, not only with those of the plan."""
