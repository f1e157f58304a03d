"""One line about a target, and how figures are written, the same in every front end.

Invariant: standard library only, so the language server pays nothing for it.
"""

from collections.abc import Sequence

from aotlens.report.records import Stage, Target, WrapperStep
from aotlens.report.source_records import Outcome

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

COMPARED: dict[Outcome, str] = {
    "equal": "equal to eager",
    "differs": "differs from eager",
    "not verified": "not verified",
}
"""The verdict's word where it stands alone."""


def human_bytes(size: int | None) -> str:
    """`34.1 MiB`; `unknown size` for a symbolic one."""
    if size is None:
        return "unknown size"
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


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


def human_us(elapsed_us: float) -> str:
    """`8 ns`, `0.31 µs`, `37.7 µs`, `1.20 ms`."""
    if elapsed_us >= 1000:
        return f"{elapsed_us / 1000:.2f} ms"
    if elapsed_us >= 10:
        return f"{elapsed_us:.1f} µs"
    return f"{elapsed_us:.2f} µs" if elapsed_us >= 0.1 else f"{1000 * elapsed_us:.0f} ns"


def human_flops(flops: int) -> str:
    """`10.2 kFLOP`."""
    value = float(flops)
    for unit in ("", "k", "M", "G", "T"):
        if value < 1000:
            return f"{value:.1f} {unit}FLOP" if unit else f"{flops} FLOP"
        value /= 1000
    return f"{value:.1f} PFLOP"


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `no nodes`."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def call_count(stage: Stage | None) -> int:
    """How many operators a stage calls: its inputs and its result are not counted."""
    return sum(node.op == "call_function" for node in stage.nodes) if stage else 0


def graph_counts(target: Target) -> str:
    """`412 fw / 655 bw nodes`, or `37 nodes` in inference."""
    if target.mode == "inference":
        return counted(call_count(target.stage("inference")), "node")
    forward, backward = call_count(target.stage("forward")), call_count(target.stage("backward"))
    return f"{forward} fw / {backward} bw nodes"


def applied_steps(target: Target) -> tuple[WrapperStep, ...]:
    """What the wrapper does on each call of this target."""
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
    """The arguments' shapes: `(f32[8, 16], i64[8])`."""
    shapes = [row.tensor.short() for row in target.inputs if row.kind == "UserInput" and row.tensor]
    return f"({', '.join(shapes)})"


def timings_summary(target: Target) -> str:
    """`capture 41.5 ms · analysis 12.2 ms · …`, in the order in which the stages ran."""
    return " · ".join(f"{stage} {human_ms(elapsed)}" for stage, elapsed in target.timings_ms.items())


def total_ms(targets: Sequence[Target]) -> float:
    """Compile time of all targets together."""
    return sum(sum(target.timings_ms.values()) for target in targets)
