"""Findings about targets that pass the limits which the user set for them.

Invariant: standard library only; the limits are the user's own, so passing one is an error.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aotlens.report.places import place
from aotlens.report.records import Diagnostic, Related, Span, Target
from aotlens.report.summary import applied_steps, counted, human_bytes, signature

__all__ = ["NO_LIMITS", "Budget", "over_budget"]

_TOLD = 3
"""The largest parts of what is too much."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a target may take; None where the user set no limit."""

    max_saved_bytes: int | None = None
    """Kept from forward to backward."""
    max_peak_bytes: int | None = None
    """The predicted peak of forward and backward together."""
    max_wrapper_steps: int | None = None
    """What the runtime wrapper does on each call."""
    max_graph_breaks: int | None = None
    """Expressions at which Dynamo breaks the graph of the function."""
    max_recompilations: int | None = None
    """How often Dynamo recompiles the function and what follows its graph breaks."""

    def with_limits(self, other: "Budget") -> "Budget":
        """This budget with the limits that another one sets."""
        return Budget(
            *(
                mine if theirs is None else theirs
                for mine, theirs in (
                    (self.max_saved_bytes, other.max_saved_bytes),
                    (self.max_peak_bytes, other.max_peak_bytes),
                    (self.max_wrapper_steps, other.max_wrapper_steps),
                    (self.max_graph_breaks, other.max_graph_breaks),
                    (self.max_recompilations, other.max_recompilations),
                )
            )
        )


NO_LIMITS = Budget()


def over_budget(target: Target, budget: Budget) -> Iterator[Diagnostic]:
    """AL801, AL802 and AL803: one finding for each limit that the target passes."""
    name = f"`{target.qualname}`{signature(target)}"
    partition, memory = target.partition, target.memory
    if partition is not None and _passes(partition.saved_bytes, budget.max_saved_bytes):
        message = (
            f"{name} saves {_over(partition.saved_bytes, budget.max_saved_bytes, 'for the backward')}"
            " (max-saved-bytes)"
        )
        largest = ((row.bytes, row.span, "saved here") for row in partition.saved)
        yield Diagnostic("AL801", "error", message, target.span, _largest(largest))
    if memory is not None and _passes(memory.peak_bytes, budget.max_peak_bytes):
        at = f", at {place(memory.peak_span)}" if memory.peak_span is not None else ""
        message = (
            f"{name} needs {_over(memory.peak_bytes, budget.max_peak_bytes, 'at its peak')}"
            f" (max-peak-bytes); the peak is in the {memory.peak_phase}{at}"
        )
        largest = ((row.bytes, row.span, f"alive at the peak, {row.kind}") for row in memory.live_at_peak)
        yield Diagnostic("AL802", "error", message, target.span, _largest(largest))
    steps = applied_steps(target)
    if _passes(len(steps), budget.max_wrapper_steps):
        message = (
            f"{name} takes {counted(len(steps), 'wrapper step')} on each call, over its budget of"
            f" {budget.max_wrapper_steps} (max-wrapper-steps): {', '.join(step.name for step in steps)}"
        )
        sites = tuple(
            Related(site.span, f"the cause of the step `{step.name}`")
            for step in steps
            for site in step.sites
        )
        yield Diagnostic("AL803", "error", message, target.span, sites[:_TOLD])


def _passes(found: int, limit: int | None) -> bool:
    return limit is not None and found > limit


def _over(found: int, limit: int | None, what: str) -> str:
    """Sizes that read alike are told in bytes too."""
    assert limit is not None
    told, allowed = human_bytes(found), human_bytes(limit)
    if told == allowed:
        told, allowed = f"{told} ({found:,} B)", f"{allowed} ({limit:,} B)"
    return f"{told} {what}, over its budget of {allowed}"


def _largest(rows: Iterable[tuple[int, Span | None, str]]) -> tuple[Related, ...]:
    """The expressions with the most bytes, each once."""
    totals: dict[tuple[Span, str], int] = {}
    for size, span, why in rows:
        if span is not None and size:
            totals[span, why] = totals.get((span, why), 0) + size
    largest = sorted(totals.items(), key=lambda row: -row[1])[:_TOLD]
    return tuple(Related(span, f"{human_bytes(size)} {why}") for (span, why), size in largest)
