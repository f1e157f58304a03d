"""The first things to fix, and the diagnostics, as lines of the Overview."""

from collections.abc import Iterator

from aotlens.model.report import Report, Target
from aotlens.model.spans import line_text
from aotlens.view.actions import NOTHING_TO_DO, Action, what_to_do
from aotlens.view.tabs.diagnostics import diagnostic_key, severity_part
from aotlens.view.tabs.source.marks import all_diagnostics
from aotlens.view.tabs.tables.rows import Jump, Line, Link, Part

MOST_DIAGNOSTICS = 6


def action_lines(report: Report, target: Target, *, has_keys: bool = True) -> Iterator[Line]:
    """Yield the most valuable findings of all targets, each with its cost and what tries its fix.

    `has_keys` is False where the keys of the terminal app do nothing.
    """
    home = target.file
    actions = what_to_do(report)
    if not actions and report.targets:
        yield Line((Part(f"  {NOTHING_TO_DO}", "ok"),), wrap=True)
    for number, action in enumerate(actions, 1):
        role = "information" if action.gain else action.severity
        parts = (
            Part(f"  {number}. ", role),
            Part(f"{line_text(action.span, home):<8} " if action.span else "", "place"),
            Part(f"{action.gain}: " if action.gain else "", "saved"),
            Part(action.sentence),
            Part(f"  → {action.cure if has_keys else action.cure_outside}", "dim"),
        )
        link = Link((action.span,) if action.span else ())
        yield Line(parts, link, _jump(action), wrap=True)


def _jump(action: Action) -> Jump:
    """Return the row of its diagnostic, in the target that has it."""
    if action.diagnostic is None:
        return Jump("why")
    return Jump("diagnostics", diagnostic_key(action.diagnostic), action.target)


def diagnostic_lines(report: Report, target: Target) -> Iterator[Line]:
    home = target.file
    diagnostics = all_diagnostics(report, target)
    for item in diagnostics[:MOST_DIAGNOSTICS]:
        letter = severity_part(item)
        parts = (
            Part(f"  {letter.text} {item.code} ", letter.role),
            Part(f" {line_text(item.span, home):<8} ", "place"),
            Part(item.message),
        )
        link = Link((item.span,) if item.span else (), tuple(related.span for related in item.related))
        yield Line(parts, link, Jump("diagnostics", diagnostic_key(item)))
    if len(diagnostics) > MOST_DIAGNOSTICS:
        yield Line(
            (Part(f"  … {len(diagnostics) - MOST_DIAGNOSTICS} more", "dim"),), jump=Jump("diagnostics")
        )
    if not diagnostics:
        yield Line((Part("  none", "ok"),))
