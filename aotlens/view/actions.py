"""The findings of a report that are worth fixing first, in the same order in every front end.

Invariant: an action belongs to exactly one diagnostic or one problem in Dynamo, and has its cost. Sizes and
times are compared by their share of the total of their kind: the peak of the target, the compile time of the
script.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aotlens.model.dynamo import Dynamo
from aotlens.model.report import Diagnostic, Report, Severity
from aotlens.model.source import Cost, Span
from aotlens.view.quantities import human_bytes, human_seconds, human_us
from aotlens.view.why import Problem, problems

__all__ = ["MOST_ACTIONS", "NOTHING_TO_DO", "Action", "cost_text", "what_to_do"]

MOST_ACTIONS = 5
LEAST_SHARE = 0.02
"""A finding below this share of its total is not an action."""

NOTHING_TO_DO = f"nothing: no error or warning, no advice worth {LEAST_SHARE:.0%} of its total"
"""Said of a report without actions: of the peak, a step, or the compile time."""

DYNAMO_CODES = frozenset({"AL405", "AL406", "AL407", "AL408", "AL409"})
"""Diagnostics that `problems` reports with the seconds they take."""

KEYS: dict[str, str] = dict.fromkeys(("AL301", "AL302", "AL303"), "`f` on the Saved tab tries it")
"""The key that tries the advice of a finding without edits."""
COMMANDS: dict[str, str] = {"AL701": "`aotlens verify` finds the node"}
"""The command that does so."""

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "information", "hint")


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do."""

    code: str
    """The code of the diagnostic that says the same."""
    severity: Severity
    sentence: str
    """The problem in one sentence, with the user's name for the value."""
    gain: str
    """The cost, such as `3.0 MiB of the peak`; empty where it is not known."""
    cure: str
    """The command that applies or tries the fix, or the keys that do so on the Overview of the app."""
    cure_outside: str
    """The same for readers outside the terminal app."""
    span: Span | None
    share: float
    """Of the total of its kind, 0 to 1; 0 where that is not known."""
    diagnostic: Diagnostic | None = None
    """The diagnostic that the action belongs to; None for a problem in Dynamo."""
    target: int | None = None
    """The index of the target whose diagnostic it is; None if it belongs to the whole report."""

    @property
    def rank(self) -> tuple[int, float]:
        """Return the sort key: wrong results come before slow or large code, whatever that costs."""
        is_wrong = self.severity == "error" or (self.severity == "warning" and not self.gain)
        return (_SEVERITIES.index(self.severity) if is_wrong else len(_SEVERITIES), -self.share)


def what_to_do(report: Report) -> tuple[Action, ...]:
    """At most `MOST_ACTIONS` actions over all targets, the most valuable first."""
    unique: dict[tuple[str, str, Span | None], Action] = {}
    for action in _actions(report):
        unique.setdefault((action.code, action.sentence, action.span), action)
    return tuple(sorted(unique.values(), key=lambda action: action.rank)[:MOST_ACTIONS])


def _actions(report: Report) -> Iterator[Action]:
    for diagnostic in report.diagnostics:
        yield from _of_diagnostic(diagnostic)
    for index, target in enumerate(report.targets):
        for diagnostic in target.diagnostics:
            yield from _of_diagnostic(diagnostic, index)
    if report.dynamo is not None:
        is_log = any(target.frontend == "trace" for target in report.targets)
        yield from _of_dynamo(report.dynamo, is_log)


def _of_diagnostic(diagnostic: Diagnostic, target: int | None = None) -> Iterator[Action]:
    """Yield the action of a diagnostic; none if it is neither wrong nor expensive."""
    cost = diagnostic.cost
    is_small = cost is None or cost.share < LEAST_SHARE
    if diagnostic.code in DYNAMO_CODES or (is_small and diagnostic.severity not in ("error", "warning")):
        return
    cure, cure_outside = _cures(diagnostic)
    yield Action(
        code=diagnostic.code,
        severity=diagnostic.severity,
        sentence=diagnostic.message,
        gain=cost_text(cost) if cost is not None else "",
        cure=cure,
        cure_outside=cure_outside,
        span=diagnostic.span,
        share=cost.share if cost is not None else 0.0,
        diagnostic=diagnostic,
        target=target,
    )


def _cures(diagnostic: Diagnostic) -> tuple[str, str]:
    """Return what applies or tries the fix, for the Overview of the terminal app and outside the app.

    Enter goes to the diagnostic first, which may be in another target than the one that is open.
    """
    if diagnostic.fixes:
        title = diagnostic.fixes[0].title
        return f"Enter, then `a`: {title}", f"in `aotlens tui`, `a` on the Diagnostics tab: {title}"
    if diagnostic.code in KEYS:
        return KEYS[diagnostic.code], f"in `aotlens tui`, {KEYS[diagnostic.code]}"
    command = COMMANDS.get(diagnostic.code, f"`aotlens rule {diagnostic.code}` explains it")
    return command, command


def _of_dynamo(dynamo: Dynamo, is_log: bool) -> Iterator[Action]:
    """Yield the actions of Dynamo's problems; those of a log name no command, since a log names no script."""
    total = dynamo.compile_seconds.total
    for problem in problems(dynamo):
        share = problem.seconds / total if total else 0.0
        in_eager = problem.kind == "code in eager"
        if problem.is_normal or not (in_eager or share >= LEAST_SHARE):
            continue
        gain = cost_text(Cost("compile seconds", problem.seconds, share)) if problem.seconds else ""
        command = "`aotlens why --try-fixes`" if problem.is_editable and not is_log else ""
        cure = ": ".join(filter(None, (command, problem.hint))) or "`aotlens why` says more"
        severity: Severity = "warning" if in_eager else "information"
        sentence = _sentence(problem)
        yield Action(problem.code, severity, sentence, gain, cure, cure, problem.span, share)


def _sentence(problem: Problem) -> str:
    kind = "" if problem.kind in problem.title else f"{problem.kind}: "
    code = f", `{problem.text}`" if problem.text else ""
    return f"{kind}{problem.full_title}{code}"


def cost_text(cost: Cost) -> str:
    """`3.0 MiB of the peak`, `1.4 s of compile time`."""
    match cost.kind:
        case "peak bytes":
            return f"{human_bytes(round(cost.amount))} of the peak"
        case "bytes per call":
            return f"{human_bytes(round(cost.amount))} copied on each call"
        case "kernel microseconds":
            return f"{human_us(cost.amount)} of each step"
        case "compile seconds":
            return f"{human_seconds(cost.amount)} of compile time"
