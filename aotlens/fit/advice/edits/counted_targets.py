"""Divide a cross entropy by all targets of the batch that count, so that parts of the batch add up to it.

    loss = F.cross_entropy(logits, targets, ignore_index=-100)

becomes

    counted_targets = (targets != -100).sum()
    loss = F.cross_entropy(logits, targets, ignore_index=-100, reduction="sum") / counted_targets

where the first line is outside of the loop over the parts.  A mean over each part would weigh the targets of
a part with few of them more than others, and be NaN for a part without any.
"""

import ast
from dataclasses import dataclass

from aotlens.fit.advice.proposals import add_keywords
from aotlens.fit.advice.step import TrainingStep, names_in
from aotlens.fixes.source import Source
from aotlens.model.source import Edit, Span

__all__ = ["CountedLoss", "counted_loss"]

FUNCTIONS = ("cross_entropy", "nll_loss")
OTHER_MEANS = ("weight", "reduction", "size_average", "reduce")
"""Keywords of a loss that is no mean over the targets."""
IGNORED = "-100"
"""torch's default of `ignore_index`."""
NAME = "counted_targets"


@dataclass(frozen=True, slots=True)
class CountedLoss:
    """The parts of the edit."""

    statement: str
    """Counts the targets of the whole batch."""
    edits: tuple[Edit, ...]
    """Of the call."""


def counted_loss(step: TrainingStep) -> CountedLoss | None:
    """Return the edit for the only cross entropy of a step; None if there is none, or several."""
    calls = [
        node
        for statement in step.statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and step.source.code(node.func).rpartition(".")[2] in FUNCTIONS
    ]
    if len(calls) != 1 or len(calls[0].args) != 2 or NAME in step.source.text:
        return None
    (call,) = calls
    targets = call.args[1]
    keywords = {keyword.arg: step.source.code(keyword.value) for keyword in call.keywords}
    stored = set().union(*(names_in(statement, ast.Store) for statement in step.statements))
    if keywords.keys() & {None, *OTHER_MEANS} or names_in(targets, ast.Load) & stored:
        return None
    statement = f"{NAME} = ({step.source.grouped(targets)} != {keywords.get('ignore_index', IGNORED)}).sum()"
    return CountedLoss(statement, _divided(step.source, call))


def _divided(source: Source, call: ast.Call) -> tuple[Edit, ...]:
    """Return the edits that make the call a sum and divide it; arguments in it may be edited too."""
    span, written = source.span(call), source.code(call)
    keyword = add_keywords(written, {"reduction": '"sum"'})[len(written[:-1].rstrip()) : -1]
    is_operand = not isinstance(source.parents.get(call), ast.Assign | ast.AnnAssign)
    return (
        *([Edit(_point(span, span.line, span.col), "(")] if is_operand else []),
        Edit(_point(span, span.end_line, span.end_col - 1), keyword),
        Edit(_point(span, span.end_line, span.end_col), f" / {NAME}{')' if is_operand else ''}"),
    )


def _point(span: Span, line: int, col: int) -> Span:
    return Span(span.file, line, col, line, col)
