"""The cost of a target and of each of its lines.  Standard library only.

Invariant: a line's cost is what its own expressions cause; code without a line has no cost here.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from aotlens.model.report import LineCost, PhaseCost, Span, Stage, Target
from aotlens.view.partition.saved import owning_recomputed
from aotlens.view.quantities import applied_steps, call_count

__all__ = ["Weights", "phase_program", "total_weights", "weights_by_line"]


@dataclass(frozen=True, slots=True)
class Weights:
    """The cost of a target, or of one of its lines."""

    saved_bytes: int = 0
    """Saved by the forward for the backward."""
    peak_bytes: int = 0
    """Alive at the predicted peak."""
    forward_nodes: int = 0
    """Operators of the forward, or of inference."""
    backward_nodes: int = 0
    kernels: int = 0
    """Generated kernels and library calls that compute a part of it; 0 where none were generated."""
    wrapper_steps: int = 0
    """Taken on each call."""
    wrapper_bytes: int = 0
    """Moved by the wrapper on each call."""

    recomputed: int = 0
    """Forward values that the backward recomputes instead of saving their memory."""
    gpu_us: float = 0.0
    """The time of its kernels on the requested GPU, predicted or measured; 0 without a GPU."""

    def minus(self, other: "Weights") -> "Weights":
        """Return the differences, rounded: those of times are not exact."""
        rows = (getattr(self, row.name) - getattr(other, row.name) for row in fields(self))
        return Weights(*(round(row, 3) for row in rows))


def phase_program(target: Target, phase: str) -> Stage:
    """Return the program that runs in a phase; an empty one where nothing does."""
    stage = target.stage("inference" if phase == "forward" and target.mode == "inference" else phase)
    return stage or Stage(phase, None, (), "")


def weights_by_line(target: Target, key: Callable[[Span], Hashable]) -> dict[Hashable, Weights]:
    """Return the cost of each line under the key of its span."""
    counters: dict[Hashable, dict[str, Any]] = {}
    for span, name, amount in (*_graph_costs(target), *_memory_costs(target), *_run_costs(target)):
        if span is not None and amount:
            line = counters.setdefault(key(span), {})
            line[name] = line.get(name, 0) + amount
    return {line: Weights(**counts) for line, counts in counters.items()}


Cost = tuple[Span | None, str, float]
"""Where, which field of `Weights`, and how much."""


def _graph_costs(target: Target) -> Iterator[Cost]:
    for phase in ("forward", "backward"):
        for node in phase_program(target, phase).nodes:
            span = node.spans[0] if node.spans else None
            yield span, f"{phase}_nodes", int(node.op == "call_function")


def _memory_costs(target: Target) -> Iterator[Cost]:
    if target.partition is not None:
        yield from ((saved.span, "saved_bytes", saved.bytes) for saved in target.partition.saved)
        yield from ((value.span, "recomputed", 1) for value in owning_recomputed(target.partition))
    if target.memory is not None:
        yield from ((live.span, "peak_bytes", live.bytes) for live in target.memory.live_at_peak)


def _run_costs(target: Target) -> Iterator[Cost]:
    """Yield kernels, their time on a GPU, and the wrapper's steps."""
    for kernel in target.kernels:
        for span in {(each.file, each.line): each for each in kernel.spans}.values():
            yield span, "kernels", 1
    for line in target.gpu_lines:
        yield line.span, "gpu_us", _time_us(line)
    for step in applied_steps(target):
        for index, site in enumerate(step.sites):
            yield site.span, "wrapper_steps", 1
            yield site.span, "wrapper_bytes", step.bytes_per_call if index == 0 else 0


def _time_us(cost: LineCost | PhaseCost) -> float:
    return cost.floor_us if cost.time_us is None else cost.time_us


def total_weights(target: Target) -> Weights:
    """Return the cost of a whole target, with what no line causes."""
    steps, partition = applied_steps(target), target.partition
    return Weights(
        saved_bytes=partition.saved_bytes if partition is not None else 0,
        peak_bytes=target.memory.peak_bytes if target.memory is not None else 0,
        forward_nodes=call_count(phase_program(target, "forward")),
        backward_nodes=call_count(phase_program(target, "backward")),
        kernels=len(target.kernels),
        wrapper_steps=len(steps),
        wrapper_bytes=sum(step.bytes_per_call for step in steps),
        recomputed=len(owning_recomputed(partition)) if partition is not None else 0,
        gpu_us=sum(_time_us(phase) for phase in target.gpu_totals),
    )
