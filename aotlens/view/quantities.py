"""Bytes, times, counts, shares and differences as text, and one line about a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aotlens.model import units
from aotlens.model.source import Outcome

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.report import Stage, Target, WrapperStep

human_bytes = units.human_bytes
human_flops = units.human_flops

COMPARED: dict[Outcome, str] = {
    "equal": "equal to eager",
    "differs": "differs from eager",
    "not verified": "not verified",
}
"""The verdict's words, for use without a sentence."""


def every_digit(number: int) -> str:
    """Return `34,078,720`."""
    return f"{number:,}"


def exact_bytes(size: int) -> str:
    """Return `34,078,720 B`."""
    return f"{every_digit(size)} B"


def bytes_range(least: int, most: int) -> str:
    """`8 to 24 KiB`; the unit of both where they differ, and one size where they are equal."""
    first, last = human_bytes(least), human_bytes(most)
    if first == last:
        return first
    number, _, unit = first.partition(" ")
    if not last.endswith(f" {unit}"):
        return f"{first} to {last}"
    text = f"{number} to {last}"
    return text.replace(".0 ", " ") if number.endswith(".0") and last.endswith(f".0 {unit}") else text


def human_ms(elapsed_ms: float) -> str:
    """`3.5 ms`, `820 ms`, `12.3 s`."""
    if elapsed_ms >= 1000:
        return f"{elapsed_ms / 1000:.1f} s"
    return f"{elapsed_ms:.0f} ms" if elapsed_ms >= 100 else f"{elapsed_ms:.1f} ms"


def human_seconds(elapsed_s: float) -> str:
    """Return a time in seconds as `human_ms` writes it."""
    return human_ms(1000 * elapsed_s)


def clock(elapsed_s: float) -> str:
    """Return whole seconds, for a running clock: `12 s`."""
    return f"{elapsed_s:.0f} s"


def limit_text(limit_s: float) -> str:
    """Return a time limit as the user wrote it: `30 s`, `0.5 s`."""
    return f"{limit_s:g} s"


def age(elapsed_s: float) -> str:
    """Return how long ago something was, in its largest unit: `1 minute ago`, `3 days ago`."""
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60))
    name, size = next(((name, size) for name, size in units if elapsed_s >= size), ("second", 1))
    count = int(elapsed_s // size)
    return f"{count} {name}{'' if count == 1 else 's'} ago"


def human_us(elapsed_us: float) -> str:
    """`8 ns`, `0.31 µs`, `37.7 µs`, `1.20 ms`, `25.7 s`."""
    if elapsed_us >= 1e6:
        return human_ms(elapsed_us / 1000)
    if elapsed_us >= 1000:
        return f"{elapsed_us / 1000:.2f} ms"
    if elapsed_us >= 10:
        return f"{elapsed_us:.1f} µs"
    return f"{elapsed_us:.2f} µs" if elapsed_us >= 0.1 else f"{1000 * elapsed_us:.0f} ns"


def per_call(size: int) -> str:
    """Return the bytes moved on every call, `2.0 KiB per call`; empty for none."""
    return f"{human_bytes(size)} per call" if size else ""


def percent(share: float, digits: int = 0) -> str:
    """Return a share of 1: `45%`."""
    return f"{share:.{digits}%}"


def small_percent(share: float) -> str:
    """Return a share with two significant digits, or all of a larger one: `0.0031%`, `130%`."""
    return f"{100 * share:.2g}%" if share < 0.995 else percent(share)


def ratio(number: float) -> str:
    """Return a number that has no unit, to one digit: `170.6`."""
    return f"{number:.1f}"


def multiplied(count: int) -> str:
    """Return how often something occurs: `×12`; empty for once."""
    return f"×{count}" if count > 1 else ""


def each_of(count: int, size: str) -> str:
    """Return several of one size: `12 × 4.0 MiB`."""
    return f"{count} × {size}"


def signed(amount: int, write: Callable[[int], str] = every_digit) -> str:
    """Return a difference with its sign, `+1.5 MiB`, `−2`; `write` formats the amount."""
    return f"{'−' if amount < 0 else '+'}{write(abs(amount))}"


def signed_bytes(size: int) -> str:
    """Return `+3.1 MiB` or `−512 B`."""
    return signed(size, human_bytes)


def signed_us(change_us: float) -> str:
    """Return `+1.2 µs`."""
    return f"{'+' if change_us > 0 else '−'}{human_us(abs(change_us))}"


def change_text(change: int, write: Callable[[int], str]) -> str:
    """Return a difference with its sign, or `the same`."""
    return signed(change, write) if change else "the same"


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `no nodes`."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def call_count(stage: Stage | None) -> int:
    """Return how many operators a stage calls; inputs and the output do not count."""
    return sum(node.op == "call_function" for node in stage.nodes) if stage else 0


def graph_counts(target: Target) -> str:
    """`412 fw / 655 bw nodes`, or `37 nodes` in inference."""
    if target.mode == "inference":
        return counted(call_count(target.stage("inference")), "node")
    forward, backward = call_count(target.stage("forward")), call_count(target.stage("backward"))
    return f"{forward} fw / {backward} bw nodes"


def applied_steps(target: Target) -> tuple[WrapperStep, ...]:
    """Return the wrapper steps that run on each call of this target."""
    return tuple(step for step in target.wrapper.steps if step.applied) if target.wrapper else ()


def target_summary(target: Target) -> str:
    """`training · 412 fw / 655 bw nodes · saves 34.1 MiB · 3 wrapper steps · verified`."""
    parts = [target.mode, graph_counts(target)]
    if target.partition:
        parts.append(f"saves {human_bytes(target.partition.saved_bytes)}")
    parts.append(counted(len(applied_steps(target)), "wrapper step"))
    if target.verified is not None:
        parts.append(COMPARED[target.verified.outcome])
    return " · ".join(parts)


def signature(target: Target) -> str:
    """Return the shapes of the arguments: `(f32[8, 16], i64[8])`."""
    shapes = [row.tensor.short() for row in target.inputs if row.kind == "UserInput" and row.tensor]
    return f"({', '.join(shapes)})"


def timings_summary(target: Target) -> str:
    """`capture 41.5 ms · analysis 12.2 ms · …`, in the order in which the stages ran."""
    return " · ".join(f"{stage} {human_ms(elapsed)}" for stage, elapsed in target.timings_ms.items())


def total_ms(targets: Sequence[Target]) -> float:
    """Compile time of all targets together."""
    return sum(sum(target.timings_ms.values()) for target in targets)


SHORT_UNITS = ("B", "K", "M", "G", "T")


def gutter_size(size_bytes: int) -> str:
    """At most four cells: `3.1M`, `512B`, `48K`."""
    value, unit = scaled(size_bytes)
    if value >= 1000:
        value, unit = value / 1024, min(unit + 1, len(SHORT_UNITS) - 1)
    number = f"{value:.1f}" if unit and value < 9.95 else f"{value:.0f}"
    return f"{number}{SHORT_UNITS[unit]}"


def scaled(size_bytes: int) -> tuple[float, int]:
    """Return the size in the largest unit in which it is at least 1, and the index of that unit."""
    value, unit = float(size_bytes), 0
    while abs(value) >= 1024 and unit < len(SHORT_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return value, unit
