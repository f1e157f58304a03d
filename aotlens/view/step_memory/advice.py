"""Advice that lowers the peak of a step, in words."""

from collections.abc import Iterator, Sequence

from aotlens.model.fit import Fit, FitAdvice, FitPlan, KindBytes, kind_name
from aotlens.model.source import Fix
from aotlens.view.quantities import counted, human_bytes, human_us
from aotlens.view.step_memory.moments import moment_words

__all__ = [
    "ADVICE",
    "advice_fixes",
    "advice_lines",
    "advice_rows",
    "advice_words",
    "cost_words",
    "floor_words",
    "plan_lines",
    "plan_words",
    "together_words",
]

LEAST_US = 0.05
"""A smaller change of the predicted time is not shown."""
MOST_KINDS = 4
ADVICE = "Edits that lower the peak, each tested alone on a copy of the script"


def advice_lines(fit: Fit) -> Iterator[str]:
    """Yield the advice, what lowers the peak most first."""
    yield ADVICE
    for row in fit.advice:
        yield from advice_rows(row)


def advice_rows(row: FitAdvice) -> Iterator[str]:
    """Yield one advice: the new peak with the edit, then its gain, cost and comparison."""
    saved = f"{human_bytes(row.saved_bytes)} less"
    yield f"  {human_bytes(row.new_peak_bytes):>10}  {row.title}"
    yield f"  {'':>10}  {saved}; {cost_words(row)}; training {_outcome_words(row)}"


def advice_words(fit: Fit) -> str:
    """`3 tested edits lower the peak of 22.7 MiB, to 14.1 MiB at best`."""
    rows = [row for row in fit.advice if row.edits]
    peak = human_bytes(fit.step_peak_bytes)
    if not rows:
        return f"No tested edit lowers the peak of {peak}"
    best = human_bytes(min(row.new_peak_bytes for row in rows))
    verb = "lowers" if len(rows) == 1 else "lower"
    return f"{counted(len(rows), 'tested edit')} {verb} the peak of {peak}, to {best} at best"


def advice_fixes(fit: Fit) -> Iterator[Fix]:
    """Yield the tested edits as fixes, those of the plan first; suggestions without an edit are left out."""
    plan = fit.plan
    if plan is not None and len(plan.titles) > 1:
        what = f"All {counted(len(plan.titles), 'edit')} for {human_bytes(plan.target_bytes)}"
        yield Fix(f"{what}: {human_bytes(plan.peak_bytes)} at the step's peak", plan.edits)
    for row in fit.advice:
        if row.edits:
            yield Fix(f"{row.title} ({human_bytes(row.saved_bytes)} less at the step's peak)", row.edits)


def cost_words(row: FitAdvice | FitPlan) -> str:
    """`12 % more FLOPs, 1.3 ms more predicted on the GPU`, or `no extra work`."""
    parts = [row.cost] if row.cost else []
    extra_us = 1e3 * (row.extra_milliseconds or 0.0)
    if abs(extra_us) >= LEAST_US:
        parts.append(f"{human_us(abs(extra_us))} {'more' if extra_us > 0 else 'less'} predicted on the GPU")
    return ", ".join(parts) or "no extra work"


def _outcome_words(row: FitAdvice | FitPlan) -> str:
    return f"{row.outcome}: {row.compared}" if row.compared else row.outcome


def together_words(plan: FitPlan) -> str:
    """`14 % more FLOPs; training equal: 26 parameters after 3 steps`."""
    return f"{cost_words(plan)}; training {_outcome_words(plan)}"


def plan_words(plan: FitPlan) -> str:
    """Return whether the target is reached, and the edits that it takes, in one line."""
    target, peak = human_bytes(plan.target_bytes), human_bytes(plan.peak_bytes)
    if not plan.titles:
        if plan.is_reached:
            return f"Target {target} is reached without edits: {peak}"
        return f"Target {target} is not reached: no tested edit helps, {peak} remain"
    edits = counted(len(plan.titles), "edit")
    if plan.is_reached:
        return f"Target {target} is reached: {peak} with {edits}"
    return f"Target {target} is not reached: {peak} with {edits}, the least that was found"


def plan_lines(plan: FitPlan) -> Iterator[str]:
    """Yield the plan with its edits, cost and comparison."""
    yield plan_words(plan)
    yield from (f"  - {title}" for title in plan.titles)
    if plan.titles:
        yield f"  together: {together_words(plan)}"
    if plan.remaining:
        where = "" if plan.remaining_at is None else f" ({moment_words(plan.remaining_at)})"
        yield f"  at the peak{where} remain {_kinds_words(plan.remaining)}"
        if plan.floor_bytes > plan.target_bytes:
            needed = "" if plan.floor_at is None else f" ({moment_words(plan.floor_at)})"
            edited = " with these edits" if plan.titles else ""
            yield f"  out of reach: {floor_words(plan.floor)} exist at once{edited}{needed}"


def floor_words(floor: Sequence[KindBytes]) -> str:
    """`1.2 MiB (800.0 KiB parameter, 400.0 KiB gradient)`: what exists during the whole step."""
    return f"{human_bytes(sum(row.bytes for row in floor))} ({_kinds_words(floor)})"


def _kinds_words(kinds: Sequence[KindBytes]) -> str:
    """`800.0 KiB parameter, 400.0 KiB gradient`: the largest."""
    shown = ", ".join(f"{human_bytes(row.bytes)} {kind_name(row)}" for row in kinds[:MOST_KINDS])
    return f"{shown}{' and others' if len(kinds) > MOST_KINDS else ''}"
