"""Charts with axes for front ends that draw them: the memory curve and the frontier.

Invariant: positions are in `SCALE` parts of an axis, from its lower end, so a front end only stretches them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil, log10

from aotlens.model.report import Memory, Partition, Target
from aotlens.model.spans import line_text
from aotlens.view.partition.frontier import chosen_point
from aotlens.view.quantities import human_bytes, human_flops
from aotlens.view.tabs.memory import peak_row
from aotlens.view.tabs.tradeoffs import work_scale

__all__ = ["SCALE", "Axis", "Chart", "Mark", "Point", "Tick", "frontier_chart", "memory_chart"]

SCALE = 10_000
HEADROOM = 1.12
"""The length of an axis per its largest value; the rest is for the label of the highest point."""
TICKS = 5
NICE_STEPS = (1, 2, 5, 10)


@dataclass(frozen=True, slots=True)
class Tick:
    position: int
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    title: str
    """What it measures, with its unit or scale."""
    ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int
    text: str = ""
    """What a pointer on it shows; empty where the chart's table shows it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point or a border with a label."""

    kind: str
    """`peak`, `chosen`, or `border` for a vertical line."""
    x: int
    y: int
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A curve with its axes."""

    kind: str
    """`steps`, each point reaching to the next one, or `points`, joined by lines."""
    title: str
    x: Axis
    y: Axis
    points: tuple[Point, ...]
    marks: tuple[Mark, ...]


def memory_chart(target: Target) -> Chart | None:
    """Return the live bytes node by node, with the peak marked; None where the curve is not known."""
    memory = target.memory
    if memory is None or not memory.curve:
        return None
    length, top = len(memory.curve), max(1, memory.peak_bytes) * HEADROOM
    points = tuple(
        Point(_part(index, length), _part(live, top)) for index, (_, live) in enumerate(memory.curve)
    )
    return Chart(
        "steps",
        "Memory",
        Axis("node, in execution order", _number_ticks(length)),
        Axis("live bytes", _byte_ticks(memory.peak_bytes, top)),
        points,
        (*_peak(memory, target, points), *_border(memory, length)),
    )


def _peak(memory: Memory, target: Target, points: Sequence[Point]) -> tuple[Mark, ...]:
    row = peak_row(memory)
    if row is None:
        return ()
    where = line_text(memory.peak_span, target.file)
    text = f"peak {human_bytes(memory.peak_bytes)}: {memory.peak_node}{f', {where}' if where else ''}"
    middle = points[row].x + SCALE // (2 * len(points))
    return (Mark("peak", middle, points[row].y, text),)


def _border(memory: Memory, length: int) -> tuple[Mark, ...]:
    if not 0 < memory.forward_nodes < length:
        return ()
    text = f"backward starts, {human_bytes(memory.held_bytes)} held"
    return (Mark("border", _part(memory.forward_nodes, length), 0, text),)


def frontier_chart(partition: Partition) -> Chart | None:
    """Return the work that each number of saved bytes costs, the compiled choice marked; None without
    choices."""
    if len(partition.frontier) < 2:
        return None
    chosen = chosen_point(partition)
    every = (*partition.frontier, chosen)
    top = max(point.saved_bytes for point in every) * HEADROOM
    scale = work_scale([point.recompute_flops for point in every])

    def height(flops: int) -> int:
        return round(SCALE * scale.height(flops) / HEADROOM)

    def text(saved_bytes: int, flops: int) -> str:
        return f"saves {human_bytes(saved_bytes)}, recomputes {human_flops(flops)}"

    points = tuple(
        Point(
            _part(point.saved_bytes, top),
            height(point.recompute_flops),
            text(point.saved_bytes, point.recompute_flops),
        )
        for point in sorted(partition.frontier, key=lambda point: point.saved_bytes)
    )
    works = _powers_of_ten(scale.least, scale.most) if scale.by_powers else _nice(scale.most)
    mark = Mark(
        "chosen",
        _part(chosen.saved_bytes, top),
        height(chosen.recompute_flops),
        f"compiled: {text(chosen.saved_bytes, chosen.recompute_flops)}",
    )
    return Chart(
        "points",
        "Frontier",
        Axis("saved bytes", _byte_ticks(round(top / HEADROOM), top)),
        Axis(
            f"recomputed work{', log scale' if scale.by_powers else ''}",
            tuple(Tick(height(flops), human_flops(flops)) for flops in (0, *works)),
        ),
        points,
        (mark,),
    )


def _part(value: float, top: float) -> int:
    return round(SCALE * value / max(top, 1))


def _byte_ticks(largest: int, top: float) -> tuple[Tick, ...]:
    """Return ticks at multiples of a power of two, up to the largest value."""
    step = 1 << max(0, ceil(largest / TICKS) - 1).bit_length()
    return tuple(Tick(_part(size, top), human_bytes(size)) for size in range(0, largest + 1, step))


def _number_ticks(length: int) -> tuple[Tick, ...]:
    return tuple(Tick(_part(number, length), str(number)) for number in (0, *_nice(length)))


def _nice(most: int) -> tuple[int, ...]:
    """Return at most `TICKS` multiples of 1, 2 or 5 times a power of ten, above 0 and up to `most`."""
    if most < 1:
        return ()
    power = 10 ** int(log10(max(1, most // TICKS)))
    step = next(power * nice for nice in NICE_STEPS if power * nice * TICKS >= most)
    return tuple(range(step, most + 1, step))


def _powers_of_ten(least: int, most: int) -> tuple[int, ...]:
    powers: list[int] = []
    for exponent in count(int(log10(max(least, 1)))):
        if 10**exponent > most:
            return tuple(powers)
        if 10**exponent >= least:
            powers.append(10**exponent)
    return tuple(powers)
