"""Family AL8: limits that the user set, and comments that hide findings."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

from aotlens.diagnostics.findings import Check
from aotlens.diagnostics.rule import Rule
from aotlens.diagnostics.step_memory import lines_at_peak
from aotlens.model.dynamo import DynamoFunction
from aotlens.model.fit import Fit
from aotlens.model.report import Diagnostic, Related, Report, Span, Target
from aotlens.model.spans import location
from aotlens.view.quantities import applied_steps, counted, exact_bytes, human_bytes, signature
from aotlens.view.recompiled_values import recompiled_values, value_words
from aotlens.view.step_memory.step import peak_words

_WHERE = (
    " Limits are set in `pyproject.toml`, for all targets, for files or for single targets: see"
    " docs/check.md."
)

RULES: tuple[Rule, ...] = (
    Rule(
        "AL801",
        "More is saved for the backward than the budget allows",
        "error",
        "`aotlens check` found a target that saves more bytes for the backward than `max-saved-bytes`. The"
        " largest values are listed." + _WHERE,
        "Memory between forward and backward.",
        "See AL301 to AL306 for the same target (a checkpoint, a smaller dtype, a mask), or raise the"
        " limit if the growth is intended.",
        '# with max-saved-bytes = "1 MiB"\ndef step(x, weight):  # x is f32[4096, 4096]\n'
        "    return torch.sin(x @ weight).exp().sum()",
    ),
    Rule(
        "AL802",
        "The peak is higher than the budget allows",
        "error",
        "The predicted peak of forward and backward exceeds `max-peak-bytes`. The values alive at the peak"
        " are listed." + _WHERE,
        "Memory while the target runs.",
        "Free large values earlier, checkpoint what is alive at the peak, or raise the limit.",
        '# with max-peak-bytes = "1 MiB"\ndef step(x):  # x is f32[4096, 4096]\n    return (x * 2).sum()',
    ),
    Rule(
        "AL803",
        "The wrapper does more on each call than the budget allows",
        "error",
        "The runtime wrapper runs more steps on each call than `max-wrapper-steps`. The steps and the"
        " expressions that cause them are listed." + _WHERE,
        "Time on each call, outside of the compiled graphs.",
        "See AL1, AL2 and AL5 for the same target, or raise the limit.",
        "# with max-wrapper-steps = 1\ndef step(state, x):\n    state.mul_(0.9)\n    return state + x",
        "def step(state, x):\n    state = state * 0.9\n    return state, state + x",
    ),
    Rule(
        "AL804",
        "An ignore comment hides nothing",
        "warning",
        "A comment `# aotlens: ignore[CODE]` is at a statement without such a finding, or names a code"
        " that does not exist. Reported for statements that ran under `aotlens check`, if the code is"
        " selected.",
        "A later finding would be hidden although nobody has seen it.",
        "Remove the comment, or the code from its list.",
        "def double(x):\n    return x * 2  # aotlens: ignore[AL101]",
        "def double(x):\n    return x * 2",
    ),
    Rule(
        "AL805",
        "More graph breaks than the budget allows",
        "error",
        "Dynamo breaks the graph of a function at more expressions than `max-graph-breaks`. The"
        " expressions are listed." + _WHERE + " `aotlens why` applies the limits too.",
        "Fusion across each break, and a second set of guards on each call.",
        "Follow the hint of each AL406, or raise the limit.",
        "# with max-graph-breaks = 0\ndef step(x):\n    y = x.sin()\n    print(y.sum())\n    return y.cos()",
        "def step(x):\n    return x.sin().cos()",
    ),
    Rule(
        "AL806",
        "More recompilations than the budget allows",
        "error",
        "Dynamo recompiles a function more often than `max-recompilations`. The values that changed are"
        " listed." + _WHERE + " `aotlens why` applies the limits too.",
        "The time of each compilation; after too many, new calls run in eager.",
        "Follow the hint of each AL407, or raise the limit.",
        "# with max-recompilations = 1\nfor step in range(5):\n    compiled(x, step / 10)",
        "for step in range(5):\n    compiled(x, torch.tensor(step / 10))",
    ),
    Rule(
        "AL807",
        "The training step needs more than the budget allows",
        "error",
        "The predicted peak of a whole training step (parameters, gradients, optimizer state, activations)"
        " exceeds `step-peak`. The lines that hold most are listed." + _WHERE + " `aotlens fit` applies the"
        " limit too.",
        "Memory while the script trains.",
        "See `aotlens fit` for all lines and kinds; AL301 and AL308 name what to change. Or raise the limit.",
        '# with step-peak = "1 MiB"\nmodel = nn.Linear(1024, 1024)\noptimizer = torch.optim.AdamW('
        "model.parameters())",
        "optimizer = torch.optim.SGD(model.parameters())",
    ),
    Rule(
        "AL808",
        "A part of the log was not checked",
        "warning",
        "`aotlens check` reads the 2,000 largest targets of a log, and the graph breaks and recompilations"
        " of its first 2,000 compilations. The log has more, so a limit may be exceeded without a finding.",
        "A regression may pass unnoticed.",
        "Check the functions that matter by name (`aotlens check LOG::NAME`), or the log of each process by"
        " itself.",
        "for layer in layers:  # 5,000 of them\n    torch.compile(layer)(x)",
    ),
)


__all__ = [
    "CHECKS",
    "NO_LIMITS",
    "RULES",
    "Budget",
    "not_checked",
    "over_budget",
    "over_dynamo_budget",
    "over_step_budget",
]

CHECKS: tuple[Check, ...] = ()
"""None: the findings need a budget, which `over_budget` and `over_dynamo_budget` take."""

_MOST_RELATED = 3
"""At most so many of the largest parts of an excess."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a target; None where the user set none."""

    max_saved_bytes: int | None = None
    """Saved by the forward for the backward."""
    max_peak_bytes: int | None = None
    """The predicted peak of forward and backward together."""
    max_wrapper_steps: int | None = None
    """The wrapper steps of each call."""
    max_graph_breaks: int | None = None
    """Expressions at which Dynamo breaks the graph of the function."""
    max_recompilations: int | None = None
    """The recompilations of the function, and of the code after its graph breaks."""
    step_peak: int | None = None
    """Bytes: the predicted peak of a whole training step of the script."""

    def with_limits(self, other: "Budget") -> "Budget":
        """This budget with the limits that another one sets."""
        limits = {field.name: getattr(other, field.name) for field in fields(other)}
        return replace(self, **{name: limit for name, limit in limits.items() if limit is not None})


NO_LIMITS = Budget()


def over_budget(target: Target, budget: Budget) -> Iterator[Diagnostic]:
    """AL801, AL802 and AL803: one finding for each limit that the target exceeds."""
    name = f"`{target.qualname}`{signature(target)}"
    partition, memory = target.partition, target.memory
    if partition is not None and _exceeds(partition.saved_bytes, budget.max_saved_bytes):
        message = (
            f"{name} saves {_excess(partition.saved_bytes, budget.max_saved_bytes, 'for the backward')}"
            " (max-saved-bytes)"
        )
        largest = ((row.bytes, row.span, "saved here") for row in partition.saved)
        yield Diagnostic("AL801", "error", message, target.span, _largest(largest))
    if memory is not None and _exceeds(memory.peak_bytes, budget.max_peak_bytes):
        where = f", at {location(memory.peak_span)}" if memory.peak_span is not None else ""
        message = (
            f"{name} needs {_excess(memory.peak_bytes, budget.max_peak_bytes, 'at its peak')}"
            f" (max-peak-bytes); the peak is in the {memory.peak_phase}{where}"
        )
        largest = ((row.bytes, row.span, f"alive at the peak, {row.kind}") for row in memory.live_at_peak)
        yield Diagnostic("AL802", "error", message, target.span, _largest(largest))
    steps = applied_steps(target)
    if _exceeds(len(steps), budget.max_wrapper_steps):
        message = (
            f"{name} takes {counted(len(steps), 'wrapper step')} on each call, over its budget of"
            f" {budget.max_wrapper_steps} (max-wrapper-steps): {', '.join(step.name for step in steps)}"
        )
        sites = tuple(
            Related(site.span, f"the cause of the step `{step.name}`")
            for step in steps
            for site in step.sites
        )
        yield Diagnostic("AL803", "error", message, target.span, sites[:_MOST_RELATED])


def _exceeds(amount: int, limit: int | None) -> bool:
    return limit is not None and amount > limit


def _excess(amount: int, limit: int | None, what: str) -> str:
    """Return by how much an amount exceeds its limit; sizes that would read alike are also given in bytes."""
    assert limit is not None
    shown, allowed = human_bytes(amount), human_bytes(limit)
    if shown == allowed:
        shown, allowed = f"{shown} ({exact_bytes(amount)})", f"{allowed} ({exact_bytes(limit)})"
    return f"{shown} {what}, over its budget of {allowed}"


def _largest(rows: Iterable[tuple[int, Span | None, str]]) -> tuple[Related, ...]:
    """Return the expressions with the most bytes, each once."""
    totals: dict[tuple[Span, str], int] = {}
    for size, span, why in rows:
        if span is not None and size:
            totals[span, why] = totals.get((span, why), 0) + size
    largest = sorted(totals.items(), key=lambda row: -row[1])[:_MOST_RELATED]
    return tuple(Related(span, f"{human_bytes(size)} {why}") for (span, why), size in largest)


def over_step_budget(fit: Fit, budget: Budget) -> Iterator[Diagnostic]:
    """AL807: the step's peak exceeds `step-peak`; not for a run without an optimizer's step."""
    limit = budget.step_peak
    if limit is None or not fit.step or fit.step_peak_bytes <= limit:
        return
    where = peak_words(fit).partition(": ")[2]
    message = (
        f"the step needs {_excess(fit.step_peak_bytes, limit, 'at its peak')} (step-peak); the peak is in the"
        f" {where}"
    )
    yield Diagnostic("AL807", "error", message, fit.at.span, lines_at_peak(fit))


def not_checked(report: Report) -> Iterator[Diagnostic]:
    """AL808: the log has more than was read of it."""
    log = report.log
    if log is None:
        return
    parts = [counted(log.listed_count, "target")] if log.listed_count else []
    if log.skipped_compilations:
        skipped = counted(log.skipped_compilations, "compilation")
        parts.append(f"the graph breaks and recompilations of {skipped}")
    if parts:
        message = (
            f"{' and '.join(parts)} of {log.path} were not checked, because the log is large;"
            f" {log.path}::NAME checks one function"
        )
        yield Diagnostic("AL808", "warning", message, None)


def over_dynamo_budget(function: DynamoFunction, budget: Budget) -> Iterator[Diagnostic]:
    """AL805 and AL806: one finding for each limit that the function exceeds."""
    breaks, recompilations = function.breaks, function.recompilations
    if budget.max_graph_breaks is not None and len(breaks) > budget.max_graph_breaks:
        message = (
            f"`{function.qualname}` has {counted(len(breaks), 'graph break')}, over its budget of"
            f" {budget.max_graph_breaks} (max-graph-breaks)"
        )
        related = tuple(Related(entry.span, f"graph break at `{entry.text}`") for entry in breaks)
        yield Diagnostic("AL805", "error", message, function.span, related)
    if budget.max_recompilations is not None and len(recompilations) > budget.max_recompilations:
        values = recompiled_values(function)
        message = (
            f"`{function.qualname}` has {counted(len(recompilations), 'recompilation')}, over its budget of"
            f" {budget.max_recompilations} (max-recompilations): {', '.join(map(value_words, values))}"
        )
        related = tuple(Related(value.span, value_words(value)) for value in values if value.span is not None)
        yield Diagnostic("AL806", "error", message, function.span, related)
