"""The memory of a step as a function of one size: each allocation is a polynomial.

Invariant: at the three sizes that were run, the polynomials give the bytes that were observed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from aotlens.fit.capacity import gpu_fit
from aotlens.model.fit import Fit, FitAllocation, GpuFit, KindGrowth, peak_of

__all__ = ["Growth", "growth_of"]

MOST = 1 << 40
"""No size is larger."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """`fixed + linear * size + square * size**2`."""

    fixed: Fraction = Fraction()
    linear: Fraction = Fraction()
    square: Fraction = Fraction()

    def __add__(self, other: "Polynomial") -> "Polynomial":
        return Polynomial(self.fixed + other.fixed, self.linear + other.linear, self.square + other.square)

    def at(self, size: int) -> int:
        return ceil(self.fixed + self.linear * size + self.square * size * size)


@dataclass(frozen=True, slots=True)
class Growth:
    """The allocations of a step, each with its polynomial."""

    allocations: tuple[FitAllocation, ...]
    polynomials: tuple[Polynomial, ...]

    def at(self, size: int) -> tuple[FitAllocation, ...]:
        """Return the allocations of the step at that size."""
        sizes = {polynomial: max(1, polynomial.at(size)) for polynomial in set(self.polynomials)}
        pairs = zip(self.allocations, self.polynomials, strict=True)
        return tuple(replace(each, bytes=sizes[polynomial]) for each, polynomial in pairs)

    def gpu_fit(self, size: int, gpu: str) -> GpuFit:
        return gpu_fit(self.at(size), gpu)

    def largest(self, gpu: str) -> int | None:
        """Return the largest size that fits; 0 if not even 1 does, None if every size fits."""
        low, high = 0, 1
        while self.gpu_fit(high, gpu).ok:
            low, high = high, 2 * high
            if high > MOST:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.gpu_fit(middle, gpu).ok else (low, middle)
        return low

    def kinds_at_peak(self, size: int) -> tuple[KindGrowth, ...]:
        """Return the polynomials of the kinds that are allocated at the peak of that size, the largest
        first."""
        moment, _ = peak_of(self.at(size))
        rows: dict[tuple[str, str], tuple[FitAllocation, Polynomial]] = {}
        for each, polynomial in zip(self.allocations, self.polynomials, strict=True):
            if each.is_alive_at(moment):
                _, total = rows.get((each.kind, each.state), (each, Polynomial()))
                rows[each.kind, each.state] = (each, total + polynomial)
        ordered = sorted(rows.values(), key=lambda row: -row[1].at(size))
        return tuple(
            KindGrowth(
                each.kind, round(total.fixed), round(total.linear), round(total.square), state=each.state
            )
            for each, total in ordered
        )


def growth_of(sizes: Sequence[int], fits: Sequence[Fit]) -> Growth | None:
    """Return the polynomials through three runs; None if the runs do not allocate in the same order."""
    steps = [_ordered(fit) for fit in fits]
    if len({tuple(_structure(step)) for step in steps}) > 1:
        return None
    memo: dict[tuple[int, ...], Polynomial] = {}
    polynomials = []
    for row in zip(*steps, strict=True):
        values = tuple(each.bytes for each in row)
        if values not in memo:
            memo[values] = _through(sizes, values)
        polynomials.append(memo[values])
    return Growth(tuple(steps[0]), tuple(polynomials))


def _ordered(fit: Fit) -> list[FitAllocation]:
    """Return what a GPU would allocate too, with moments counted without the rest."""
    rows = [each for each in fit.allocations if each.kind != "working memory"]
    moments = sorted(
        {moment for each in rows for moment in (each.made, each.freed) if moment is not None and moment >= 0}
    )
    rank = {moment: index for index, moment in enumerate(moments)}
    return [
        replace(each, made=rank.get(each.made, -1), freed=None if each.freed is None else rank[each.freed])
        for each in rows
    ]


def _structure(step: Sequence[FitAllocation]) -> list[tuple[object, ...]]:
    return [(each.op, each.kind, each.state, each.made, each.freed) for each in step]


def _through(sizes: Sequence[int], values: Sequence[int]) -> Polynomial:
    """Interpolate by divided differences."""
    first, second, third = sizes
    slope = Fraction(values[1] - values[0], second - first)
    next_slope = Fraction(values[2] - values[1], third - second)
    square = (next_slope - slope) / (third - first)
    linear = slope - square * (first + second)
    return Polynomial(values[0] - linear * first - square * first * first, linear, square)
