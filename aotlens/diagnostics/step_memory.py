"""The part of family AL3 about a whole step: AL307 and AL308, from the result of `aotlens fit`.

They are no `CHECKS`, which take a target: `aotlens.fit.child` adds them to the report of a step.

Invariant: the findings need no second run; each names bytes that the result holds.
"""

from collections.abc import Iterator

from aotlens.diagnostics.findings import Limits
from aotlens.diagnostics.rule import Rule
from aotlens.model.fit import Fit, FitKind
from aotlens.model.report import Diagnostic, Related
from aotlens.model.source import Cost
from aotlens.view.quantities import human_bytes, percent
from aotlens.view.step_memory.lines import line_totals
from aotlens.view.step_memory.step import gpu_words, peak_words

__all__ = ["RULES", "lines_at_peak", "step_findings"]

MOST_RELATED = 3

RULES: tuple[Rule, ...] = (
    Rule(
        "AL307",
        "The training step does not fit the GPU",
        "error",
        "`aotlens fit --gpu`, or `aotlens check` with a budget `step-peak` and a `gpu` in `pyproject.toml`,"
        " predicts that torch's caching allocator reserves more for a step than the GPU has. The lines that"
        " hold most at the peak are listed.",
        "The script ends with `torch.cuda.OutOfMemoryError`, perhaps after hours: at the first step that"
        " reaches the peak.",
        "Lower what the listed lines hold: a smaller batch, an activation checkpoint (AL301), a smaller"
        " dtype, gradient accumulation. `aotlens fit` shows all lines.",
        '# aotlens fit train.py --gpu t4\nmodel = nn.Linear(65536, 65536, device="cuda")',
        "# aotlens fit train.py --gpu h100",
    ),
    Rule(
        "AL308",
        "One line holds a large part of the step's peak",
        "information",
        "At the peak of a training step, activations or temporaries that one line allocated are a third of"
        " all memory, or more. Parameters, gradients and optimizer state are not counted: their lines"
        " cannot change their size.",
        "That share of the peak.",
        "This line is the first to change: checkpoint it if its values are saved for the backward, compute"
        " it in chunks if they are temporaries, release them earlier if they are outputs.",
        "loss = F.cross_entropy(head(hidden).float(), targets)  # f32[8 * 4096, 128256]",
        "loss = chunked_cross_entropy(head, hidden, targets)",
    ),
)

_CHANGEABLE: frozenset[FitKind] = frozenset({"saved activation", "temporary", "working memory", "output"})
_ADVICE: dict[FitKind, str] = {
    "saved activation": "checkpoint it, or save it in a smaller dtype",
    "temporary": "compute it in chunks",
    "working memory": "compute it in chunks",
    "output": "release it before the backward ends",
}


def step_findings(fit: Fit, limits: Limits = Limits()) -> Iterator[Diagnostic]:  # noqa: B008 (it is frozen)
    """AL307: the step does not fit the GPU.  AL308: one line holds a large part of its peak."""
    if fit.fits is not None and not fit.fits.ok:
        message = f"the step {gpu_words(fit.fits)}; {peak_words(fit)}"
        yield Diagnostic("AL307", "error", message, fit.at.span, lines_at_peak(fit))
    for row in fit.by_line:
        share = row.bytes / max(1, fit.step_peak_bytes)
        if row.kind not in _CHANGEABLE or row.span is None or row.bytes < limits.step_line_bytes:
            continue
        if share >= limits.step_line_share:
            message = (
                f"{human_bytes(row.bytes)} of the step's peak of {human_bytes(fit.step_peak_bytes)}"
                f" ({percent(share)}) are held by this line, as {row.kind}: {_ADVICE[row.kind]}"
            )
            cost = Cost("peak bytes", row.bytes, share)
            yield Diagnostic("AL308", "information", message, row.span, cost=cost)


def lines_at_peak(fit: Fit) -> tuple[Related, ...]:
    """Return the lines that hold most at the peak, each with its kinds together."""
    return tuple(
        Related(total.span, f"{human_bytes(total.bytes)} held at the peak")
        for total in line_totals(fit)[:MOST_RELATED]
    )
