"""The results of `aotlens check`, as records that every format renders."""

from dataclasses import dataclass

from aotlens.diagnostics.budgets import Budget
from aotlens.model.report import Diagnostic, Target


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic, and the file whose check reported it."""

    diagnostic: Diagnostic
    file: str
    """The file of its location; the checked file when it has none."""
    qualname: str | None = None
    """The target; None for a finding about the file."""
    exit_code: int = 1
    """The exit code that it causes: 0 where it is too mild to fail."""


@dataclass(frozen=True, slots=True)
class CheckedTarget:
    """A traced target, with its limits."""

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
