"""Writes to inputs that the graphs make themselves: the last nodes of the forward, and of the backward.

Invariant: such a node is a `copy_` into a graph input with an effect; it runs after everything that reads
the input's former value.
"""

from dataclasses import dataclass
from typing import Any

import torch

from aotlens.analysis.records import MutationType, ViewAndMutationMeta
from aotlens.capture.operators import RESIZE_STORAGE
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import repeated_dims
from aotlens.errors import RejectedAssertionError, UnsupportedError
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.subclasses import leaves_of

aten = torch.ops.aten


def write_in_graph(captured: Captured, meta: ViewAndMutationMeta) -> None:
    """Add the final `copy_` of each mutation that stays in the graph."""
    recorder = captured.recorder
    _resize_storages(captured, meta)
    for info in meta.in_graph:
        given = captured.inputs[info.index]
        if (
            given.node is None
            or not info.mutates_data
            or info.mutation_type is not MutationType.MUTATED_IN_GRAPH
        ):
            continue
        place = info.writes[-1].origin.place if info.writes else NO_ORIGIN
        reason = f"writes the new value of `{given.slot.name}` back"
        origin = Origin(place, "aten.copy_.default", stage="joint", reason=reason, effect=True)
        targets = given.wrapped.nodes() if given.wrapped is not None else (given.node,)
        for target, (_, value) in zip(targets, leaves_of(info.value), strict=True):
            if value is target:
                continue
            written, new = target, value
            with recorder.adding("joint", reason, place):
                for dim in repeated_dims(target.val):  # every memory location once
                    written = recorder.emit(aten.slice.Tensor, written, dim, 0, 1)
                    new = recorder.emit(aten.slice.Tensor, new, dim, 0, 1)
            recorder.add_node(aten.copy_.default, (written, new), {}, written.val, origin)


def _resize_storages(captured: Captured, meta: ViewAndMutationMeta) -> None:
    """Before the copies, which may need the memory; a larger one before all that looks at it."""
    recorder = captured.recorder
    for info in meta.inputs:
        given = captured.inputs[info.index]
        if info.storage_bytes is None or given.node is None:
            continue
        place = info.writes[-1].origin.place if info.writes else NO_ORIGIN
        reason = f"gives the storage of `{given.slot.name}` its new size"
        origin = Origin(place, str(RESIZE_STORAGE.default), stage="joint", reason=reason, effect=True)
        size = recorder.argument(info.storage_bytes)
        recorder.add_node(RESIZE_STORAGE.default, (given.node, size), {}, None, origin)
        if given.storage is not None and given.storage.grows:
            recorder.nodes.insert(0, recorder.nodes.pop())


@dataclass(frozen=True, slots=True)
class InputState:
    """What an input was when the forward had run."""

    version: int
    """Of its storage."""
    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    counter: int
    """Autograd's version counter."""


def input_states(captured: Captured) -> list[InputState | None]:
    """One per input; None for what is no tensor."""
    return [_state(given) for given in captured.inputs]


def _state(given: CapturedInput) -> InputState | None:
    if given.storage is None or given.duplicate_of is not None:
        return None
    own = given.argument
    counter = 0 if own.is_inference() else own._version
    return InputState(given.storage.version, tuple(own.shape), tuple(own.stride()), counter)


def write_in_backward(
    captured: Captured, meta: ViewAndMutationMeta, before: list[InputState | None]
) -> dict[int, int]:
    """Add the final `copy_` into each input that the backward has written to.

    Returns:
        By how much it raises their version counters, by the identity of what the `copy_` writes to.

    Raises:
        UnsupportedError: it changed an input's sizes or strides, or one that the forward changes too and that
            it does not find by itself.
    """
    recorder, bumps = captured.recorder, dict[int, int]()
    for index, (given, state) in enumerate(zip(captured.inputs, before, strict=True)):
        now = _state(given)
        if state is None or given.storage is None or now is None or state == now:
            continue
        if (state.shape, state.stride) != (now.shape, now.stride):
            raise RejectedAssertionError(
                f"`{given.slot.name}` is an input that had its metadata mutated in the backward",
                recorder.span,
                "take a view of it instead",
            )
        if not recorder.current.is_written(given.storage, state.version):
            continue
        target = recorder.current.target(given.storage)
        if given.base is not None and given.base != index and target is not None:
            continue  # written through its base
        changed = index < len(meta.inputs) and meta.inputs[index]
        is_changed = changed and (changed.mutates_data or changed.is_moved)
        if target is None and (given.node is None or given.base is not None or is_changed):
            raise UnsupportedError(
                f"the backward writes to the input `{given.slot.name}`, which the forward writes to as well",
                recorder.span,
                "write to a clone in one of them",
            )
        place = given.storage.writes[-1].origin.place
        reason = f"the backward changes `{given.slot.name}`"
        origin = Origin(place, "aten.copy_.default", backward=True, stage="joint", reason=reason, effect=True)
        target = target or given.node
        assert target is not None  # refused above
        recorder.add_node(aten.copy_.default, (target, given.storage.base), {}, given.fake, origin)
        bumps[id(target)] = now.counter - state.counter
    return bumps
