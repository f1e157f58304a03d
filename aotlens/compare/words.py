"""Words for the differences of two traces, the same in every format. Standard library only."""

from collections.abc import Iterator
from dataclasses import dataclass

from aotlens.compare.difference import LineChange, NodeChange, TargetChange
from aotlens.compare.line_pairs import Line
from aotlens.compare.saved import SavedChange
from aotlens.compare.weights import Weights
from aotlens.model.spans import line_of, shown_path
from aotlens.view.partition.saved import name_with_node
from aotlens.view.quantities import counted, human_bytes, human_us, signed, signed_bytes, signed_us

__all__ = ["Total", "differing_totals", "line_facts", "line_label", "line_weights", "node_text", "saved_text"]

MARKS = {"added": "+", "removed": "-", "changed": "~"}


@dataclass(frozen=True, slots=True)
class Total:
    """One figure of a target, before and after."""

    name: str
    before: str
    after: str
    change: str
    is_more: bool


def differing_totals(change: TargetChange) -> Iterator[Total]:
    """Yield the figures of a target that differ."""
    old, new = change.before, change.after
    rows = (
        ("saved", old.saved_bytes, new.saved_bytes, True),
        ("peak", old.peak_bytes, new.peak_bytes, True),
        ("forward nodes", old.forward_nodes, new.forward_nodes, False),
        ("backward nodes", old.backward_nodes, new.backward_nodes, False),
        ("recomputed values", old.recomputed, new.recomputed, False),
        ("kernels", old.kernels, new.kernels, False),
        ("wrapper steps", old.wrapper_steps, new.wrapper_steps, False),
        ("wrapper bytes per call", old.wrapper_bytes, new.wrapper_bytes, True),
    )
    for name, before, after, is_size in rows:
        if before != after:
            shown = human_bytes if is_size else str
            change_text = signed_bytes(after - before) if is_size else signed(after - before)
            yield Total(name, shown(before), shown(after), change_text, after > before)
    if old.gpu_us != new.gpu_us:
        difference = signed_us(new.gpu_us - old.gpu_us)
        times = human_us(old.gpu_us), human_us(new.gpu_us)
        yield Total("time on the GPU", *times, difference, new.gpu_us > old.gpu_us)


def line_facts(weights: Weights) -> Iterator[str]:
    """Yield the costs of a line on one side: `12.0 µs`, `saves 2.0 MiB`, `recomputes 2`, `3 kernels`."""
    if weights.gpu_us:
        yield human_us(weights.gpu_us)
    if weights.saved_bytes:
        yield f"saves {human_bytes(weights.saved_bytes)}"
    if weights.recomputed:
        yield f"recomputes {weights.recomputed}"
    if weights.kernels:
        yield counted(weights.kernels, "kernel")
    if weights.wrapper_steps:
        yield counted(weights.wrapper_steps, "wrapper step")
    if weights.peak_bytes:
        yield f"{human_bytes(weights.peak_bytes)} at the peak"


def line_weights(weights: Weights) -> Iterator[str]:
    """Yield the changed costs of a line: `saved +8.0 KiB`, `+1 forward node`."""
    sizes = (
        ("saved", weights.saved_bytes),
        ("at the peak", weights.peak_bytes),
        ("wrapper, per call", weights.wrapper_bytes),
    )
    yield from (f"{name} {signed_bytes(size)}" for name, size in sizes if size)
    counts = (
        ("forward node", weights.forward_nodes),
        ("backward node", weights.backward_nodes),
        ("recomputed value", weights.recomputed),
        ("kernel", weights.kernels),
        ("wrapper step", weights.wrapper_steps),
    )
    yield from (_signed_count(count, name) for name, count in counts if count)
    if weights.gpu_us:
        yield f"{signed_us(weights.gpu_us)} on the GPU"


def line_label(row: LineChange) -> str:
    """Return `model.py:41`; with its old number where that differs; or that the line is gone."""
    if row.after is None:
        assert row.before is not None
        return f"{_line_location(row.before)} (removed)"
    if row.before is None:
        return f"{_line_location(row.after)} (new)"
    moved = f" (was {row.before.number})" if row.before.number != row.after.number else ""
    return f"{_line_location(row.after)}{moved}"


def saved_text(change: SavedChange) -> str:
    """Return `+8.0 KiB hidden f32[64, 32]` and its line; or that it is no longer saved."""
    value = change.value
    where = "no longer saved" if change.is_gone else line_of(value.span, None)
    saved = f"{signed_bytes(change.change_bytes)} {name_with_node(value)}"
    return "  ".join(filter(None, (saved, value.tensor.short(), where)))


def node_text(change: NodeChange) -> str:
    """`+ forward sin = aten.sin.default  f32[64, 32]`."""
    node = change.node
    shape = f"  {node.tensor.short()}" if node.tensor is not None and change.kind != "changed" else ""
    return f"{MARKS[change.kind]} {change.phase} {node.name} = {node.target}{shape}"


def _signed_count(count: int, noun: str) -> str:
    """`+1 forward node`."""
    return signed(count, lambda number: counted(number, noun))


def _line_location(line: Line) -> str:
    return f"{shown_path(line.file)}:{line.number}"
