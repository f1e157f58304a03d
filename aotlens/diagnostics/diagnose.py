"""The findings about a target, from its report alone.

Invariant: a finding names the user's variable and source location and its cost. Source files are read only
for the user's words; where one is missing the finding names the graph's node instead.
"""

from aotlens.diagnostics.catalogue import CHECKS
from aotlens.diagnostics.findings import Limits
from aotlens.model.report import Diagnostic, Target
from aotlens.model.spans import own_first

__all__ = ["diagnose"]


def diagnose(target: Target, limits: Limits | None = None) -> tuple[Diagnostic, ...]:
    """Return every finding about the target in source order, those in the user's own files first."""
    bounds = limits or Limits()
    findings = [diagnostic for check in CHECKS for diagnostic in check(target, bounds)]
    return tuple(sorted(findings, key=_order))


def _order(diagnostic: Diagnostic) -> tuple[bool, str, int, int, str]:
    span, code = diagnostic.span, diagnostic.code
    return (own_first(span), span.file, span.line, span.col, code) if span else (False, "", 0, 0, code)
