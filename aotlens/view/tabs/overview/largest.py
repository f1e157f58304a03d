"""The largest values as lines of the Overview: those saved, and those alive at the peak with its curve."""

from collections.abc import Iterator

from aotlens.model.report import Memory, SavedValue, Target
from aotlens.model.spans import line_text, texts
from aotlens.view.fold import Fold, alive_folds, fold, lifetime, total_bytes
from aotlens.view.partition.reasons import reason_text
from aotlens.view.partition.saved import layer_value_name, owning, same_named, with_node
from aotlens.view.plots import plot
from aotlens.view.quantities import counted, human_bytes
from aotlens.view.tabs.saved import by_bytes, in_first_layer, same_layer, saved_link
from aotlens.view.tabs.tables.rows import Jump, Line, Link, Part

MOST_SAVED = 5
MOST_ALIVE = 5
PLOT_WIDTH, PLOT_HEIGHT = 48, 6
FEWEST_POINTS = 8
"""A curve with fewer nodes is shown by its peak alone."""


def saved_lines(target: Target) -> Iterator[Line]:
    """Yield the largest saved values, identical layers folded as in `aotlens inspect`."""
    partition = target.partition
    if partition is None:
        return
    dear = by_bytes(owning(partition))
    text_at = texts()
    unordered = fold(dear, lambda saved: layer_value_name(saved, text_at), same_layer)
    folds = sorted(unordered, key=lambda group: -total_bytes(group))
    ambiguous = same_named(dear, text_at)
    for group in folds[:MOST_SAVED]:
        label = with_node(f"{group.label} {group.times}".strip(), in_first_layer(group.items), ambiguous)
        yield fold_line(group, label, target.file)
    if not dear:
        yield Line((Part("nothing beyond what is alive anyway", "dim"),))
    if rest := folds[MOST_SAVED:]:
        number, size = sum(len(group.items) for group in rest), sum(total_bytes(group) for group in rest)
        text = f"{human_bytes(size):>9}  in {counted(number, 'more value')}"
        yield Line((Part(text, "dim"),), jump=Jump("saved"))


def fold_line(group: Fold[SavedValue], label: str, home: str | None) -> Line:
    first = group.first
    parts = (
        Part(f"{human_bytes(total_bytes(group)):>9}  ", "saved"),
        Part(f"{line_text(first.span, home):<8}  ", "place"),
        Part(label, "name"),
        Part(f"  {reason_text(first)}", "dim"),
    )
    return Line(parts, saved_link(first), Jump("saved", f"saved:{first.node}"))


def peak_link(memory: Memory) -> Link:
    """Return each expression whose value is alive at the peak, once."""
    return Link(tuple(dict.fromkeys(live.span for live in memory.live_at_peak if live.span is not None)))


def memory_plot(target: Target) -> Iterator[Line]:
    """Yield the curve of live bytes, forward then backward, with the peak as its only label."""
    memory = target.memory
    if memory is None or len(memory.curve) < FEWEST_POINTS:
        return
    link = peak_link(memory)
    rows = plot([value for _, value in memory.curve], PLOT_WIDTH, PLOT_HEIGHT)
    for number, row in enumerate(rows):
        label = human_bytes(memory.peak_bytes) if number == 0 else ""
        yield Line(
            (Part(f"{label:>10} {'┤' if label else '│'}", "dim"), Part(row, "saved")),
            link if label else Link(),
        )
    both = 0 < memory.forward_nodes < len(memory.curve)
    edge = round(len(rows[0]) * memory.forward_nodes / len(memory.curve)) if both else 0
    names = f"{'forward ':<{edge}}backward" if edge else f"{len(memory.curve)} nodes"
    yield Line((Part(f"{'0 B':>10} ┼{'─' * len(rows[0])}", "dim"),))
    yield Line((Part(f"{'':>12}{names}", "dim"),))


def alive_lines(target: Target) -> Iterator[Line]:
    """Yield the largest values alive at the peak, identical layers folded, with their lifetimes."""
    if target.memory is None:
        return
    for group in alive_folds(target.memory)[:MOST_ALIVE]:
        first = group.first
        parts = (
            Part(f"{human_bytes(total_bytes(group)):>9}  ", "saved"),
            Part(f"{group.label} {group.times}".strip(), "name"),
            Part(f"  {first.kind}, {lifetime(first, target.file)}", "dim"),
        )
        yield Line(parts, Link((first.span,) if first.span is not None else ()))
