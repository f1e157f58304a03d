"""What `aotlens check` found, as records that every format renders."""

from dataclasses import dataclass

from aotlens.diagnostics.budgets import Budget
from aotlens.model.report import Diagnostic, Target


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic, and which file's check it came from."""

    diagnostic: Diagnostic
    file: str
    """Where it stands; the file that was checked when it has no place."""
    qualname: str | None = None
    """The target; None for what concerns the file."""
    exit_code: int = 1
    """What it makes the command end with: 0 where it is too mild to fail."""


@dataclass(frozen=True, slots=True)
class CheckedTarget:
    """A target that was traced, with the limits for it."""

    file: str
    target: Target
    budget: Budget


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of `aotlens check`."""

    files: tuple[str, ...]
    targets: tuple[CheckedTarget, ...]
    findings: tuple[Finding, ...]
    hidden: tuple[Finding, ...]
    """Findings that a comment hides."""
    exit_code: int
