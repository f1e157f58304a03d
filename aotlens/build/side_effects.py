"""The rows of a function's side effects: names, items of containers, and rebound buffers.

Invariant: one row for each name or item that the wrapper binds, in its order; each names a line.
"""

from aotlens.capture.free_variables.mentions import write_span
from aotlens.capture.records import Captured
from aotlens.model import report as rows
from aotlens.model.report import Span
from aotlens.model.spans import site_at
from aotlens.model.target_facts import SideEffectHandling

REASONS: dict[SideEffectHandling, str] = {
    "bound": "each call binds it to the new value",
    "set": "each call sets it to the new value",
}


def build_side_effects(captured: Captured) -> tuple[rows.SideEffect, ...]:
    """Return one row for each side effect."""
    structure, codes = captured.structure, captured.reachable.codes
    effects: list[tuple[str, SideEffectHandling, Span | None]] = [
        (item.user_name, "set" if item.is_item else "bound", item.span) for item in structure.rebindings
    ]
    effects += [(fqn, "bound", write_span(codes, fqn.rsplit(".", 1)[-1])) for fqn in structure.rebound]
    first = first_side_effect(captured)
    return tuple(
        rows.SideEffect(name, handling, (index,), REASONS[handling], _sites(span or captured.subject.span))
        for index, (name, handling, span) in enumerate(effects, first)
    )


def first_side_effect(captured: Captured) -> int:
    """Return the index of the first result of a side effect; the number of results where there is none."""
    structure = captured.structure
    return len(captured.outputs) - len(structure.rebound) - len(structure.rebindings)


def _sites(span: Span | None) -> tuple[rows.Site, ...]:
    return () if span is None else (site_at(span),)
