"""Other choices of what to save: the frontier as a plot, the budget, the answers to what-ifs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

from aotlens.model.report import Partition, WhatIf
from aotlens.view.partition.frontier import chosen_point
from aotlens.view.partition.reasons import budget_text, listed, named, solver_choice_label
from aotlens.view.plots import plot
from aotlens.view.quantities import change_text, counted, human_bytes, human_flops
from aotlens.view.tabs.tables.rows import Line, Part

PLOT_WIDTH, PLOT_HEIGHT = 40, 5
CHOSEN = "▲"
FINE = 1000
"""The height of the plot in its own steps."""
WIDE = 20
"""From this ratio of the most to the least work on, the scale is logarithmic."""
FOOT = 0.15
"""The position of the least work on the scale."""


def tradeoff_lines(partition: Partition) -> tuple[Line, ...]:
    """Return the budget, the what-ifs and the frontier; empty if there are none."""
    drawn = frontier_plot(partition) if len(partition.frontier) > 1 else ()
    return (*choice_lines(partition), *drawn)


def choice_lines(partition: Partition) -> tuple[Line, ...]:
    """Return the budget and the what-ifs, for a front end that draws the frontier itself."""
    lines: list[Line] = []
    if partition.budget is not None:
        lines.append(Line((Part(budget_text(partition.budget)),), wrap=True))
    for answer in partition.what_if:
        lines += what_if_lines(answer, partition)
    return tuple(lines)


def frontier_plot(partition: Partition) -> Iterator[Line]:
    """Yield recomputation (up) against saved bytes (to the right), with the compiled choice marked."""
    chosen, points = chosen_point(partition), partition.frontier
    every = (*points, chosen)
    least, most = min(p.saved_bytes for p in every), max(p.saved_bytes for p in every)
    scale = work_scale([p.recompute_flops for p in every])
    note = f"  {counted(len(points), 'choice')}{', work on a log scale' if scale.by_powers else ''}"
    yield Line((Part("Frontier", "heading"), Part(f"{note}; {CHOSEN} marks the compiled choice", "dim")))

    def column_of(saved_bytes: int) -> int:
        """Return the column of so many bytes."""
        return round((PLOT_WIDTH - 1) * (saved_bytes - least) / max(most - least, 1))

    corners = [(column_of(point.saved_bytes), scale.height(point.recompute_flops)) for point in points]
    heights = [round(FINE * height_at(column, corners)) for column in range(PLOT_WIDTH)]
    column = column_of(chosen.saved_bytes)
    labels = {0: human_flops(scale.most), PLOT_HEIGHT - 1: human_flops(0)}
    # A column of full height, not shown, sets the scale.
    for number, row in enumerate(plot([FINE, *heights], PLOT_WIDTH + 1, PLOT_HEIGHT)):
        label, drawn = labels.get(number, ""), row[1:]
        yield Line(
            (
                Part(f"{label:>11} {'┤' if label else '│'}", "dim"),
                Part(drawn[:column], "saved"),
                Part(drawn[column : column + 1], "accent"),
                Part(drawn[column + 1 :], "saved"),
            )
        )
    axis = f"{'─' * column}", CHOSEN, "─" * (PLOT_WIDTH - 1 - column)
    yield Line((Part(f"{'':>12}└{axis[0]}", "dim"), Part(axis[1], "accent"), Part(axis[2], "dim")))
    ends = human_bytes(least), human_bytes(most)
    yield Line((Part(f"{'saved':>11}  {ends[0]}{ends[1]:>{PLOT_WIDTH - len(ends[0])}}", "dim"),))


def height_at(column: int, corners: Sequence[tuple[int, float]]) -> float:
    """Return the height of the line through the corners; outside of them, the height of the nearest one."""
    for (left, before), (right, after) in pairwise(corners):
        if left <= column <= right:
            return before + (after - before) * (column - left) / max(right - left, 1)
    return corners[0][1] if column < corners[0][0] else corners[-1][1]


@dataclass(frozen=True, slots=True)
class WorkScale:
    """The position of an amount of work between none and the most."""

    least: int
    """The smallest amount above zero."""
    most: int
    by_powers: bool
    """Logarithmic, as one end of the frontier may cost a thousand times the other; none stays at the foot."""

    def height(self, flops: int) -> float:
        if not self.by_powers or flops <= 0:
            return flops / max(self.most, 1)
        return FOOT + (1 - FOOT) * log(flops / self.least) / log(self.most / self.least)


def work_scale(amounts: Sequence[int]) -> WorkScale:
    some = [flops for flops in amounts if flops > 0] or [1]
    return WorkScale(min(some), max(some), max(some) > WIDE * min(some))


def what_if_lines(answer: WhatIf, partition: Partition) -> Iterator[Line]:
    """Yield the totals after the change, and the differences from the compiled choice; for a log, from our
    solver's."""
    before, after, own = answer.before, answer.after, partition.own
    beside = "" if own is None else f"  compared with {solver_choice_label(own)}"
    yield Line((Part("what if  ", "dim"), Part(answer.change, "name"), Part(beside, "dim")))
    for title, old, new, write in (
        ("saved", before.saved_bytes, after.saved_bytes, human_bytes),
        ("recomputed", before.recompute_flops, after.recompute_flops, human_flops),
        ("peak", before.peak_bytes, after.peak_bytes, human_bytes),
    ):
        shown = (
            Part(f"{title:>16}  ", "dim"),
            Part(f"{write(old):>10} → {write(new):>10}  "),
            Part(change_text(new - old, write), "accent" if new != old else "dim"),
        )
        yield Line(shown)
    for title, names in (("not saved", answer.no_longer_saved), ("saved instead", answer.newly_saved)):
        if names:
            yield Line((Part(f"{title:>16}  ", "dim"), Part(listed(named(names, partition)), "name")))
