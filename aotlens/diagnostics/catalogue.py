"""The catalogue of diagnostics: the rules and checks of every family, in the order of their codes.

Invariant: a code never changes its meaning, and every code that is reported has a rule. A new rule touches
only the module of its family.
"""

from typing import Protocol

from aotlens.diagnostics import (
    aliasing,
    budgets,
    correctness,
    failures,
    gpu,
    mutation,
    saved,
    tracing,
    wrapper,
)
from aotlens.diagnostics.findings import Check
from aotlens.diagnostics.rule import FAMILIES, Rule

__all__ = ["CHECKS", "FAMILIES", "RULES", "Rule"]


class Family(Protocol):
    """A module with one family of diagnostics."""

    RULES: tuple[Rule, ...]
    """One for each code of the family."""
    CHECKS: tuple[Check, ...]
    """Functions that yield the family's findings about a target."""


MODULES: tuple[Family, ...] = (
    mutation,
    aliasing,
    saved,
    tracing,
    wrapper,
    gpu,
    correctness,
    budgets,
    failures,
)
"""One for each entry of `FAMILIES`."""

RULES = tuple(rule for family in MODULES for rule in family.RULES)
"""Every rule, by code; the source of `aotlens rule` and `docs/rules/`."""

CHECKS = tuple(check for family in MODULES for check in family.CHECKS)
"""Every check that `diagnose` runs on a target."""
