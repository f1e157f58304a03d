"""Writes to inputs inside the graphs: the last nodes of the forward, and of the backward.

Invariant: such a node is a `copy_` into a graph input with an effect; it runs after all reads of the former
value.
"""

from collections.abc import Sequence

import torch

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.inputs.exit_state import input_state
from aotlens.capture.operators import RESIZE_STORAGE
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, InputState, OpenInput
from aotlens.capture.storage import repeated_dims
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.subclasses import leaves_of
from aotlens.unsupported import unsupported

aten = torch.ops.aten


def write_in_graph(captured: Captured, builder: Recorder, meta: ViewAndMutationMeta) -> None:
    """Add the final `copy_` of each mutation that stays in the graph."""
    _resize_storages(captured, builder, meta)
    for info in meta.in_graph:
        if not info.mutates_data:
            continue
        captured_input = captured.inputs[info.index]
        location = info.writes[-1].origin.location if info.writes else NO_ORIGIN
        reason = f"copies the new value to `{captured_input.slot.name}`"
        origin = Origin(location, "aten.copy_.default", stage="joint", reason=reason, effect=True)
        for target, (_, value) in zip(captured_input.nodes, leaves_of(info.value), strict=True):
            if value is target:
                continue
            written, new = target, value
            with builder.adding("joint", reason, location):
                for dim in repeated_dims(target.val):  # each memory location once
                    written = builder.emit(aten.slice.Tensor, written, dim, 0, 1)
                    new = builder.emit(aten.slice.Tensor, new, dim, 0, 1)
            builder.add_node(aten.copy_.default, (written, new), {}, written.val, origin)


def _resize_storages(captured: Captured, builder: Recorder, meta: ViewAndMutationMeta) -> None:
    """Resize storages before the copies, which may need the memory; an enlarged one before all reads."""
    for info in meta.inputs:
        captured_input = captured.inputs[info.index]
        if info.storage_bytes is None or captured_input.node is None:
            continue
        location = info.writes[-1].origin.location if info.writes else NO_ORIGIN
        reason = f"resizes the storage of `{captured_input.slot.name}`"
        origin = Origin(location, str(RESIZE_STORAGE.default), stage="joint", reason=reason, effect=True)
        size = builder.argument(info.storage_bytes)
        builder.add_node(RESIZE_STORAGE.default, (captured_input.node, size), {}, None, origin)
        if captured_input.storage is not None and captured_input.storage.grows:
            builder.nodes.insert(0, builder.nodes.pop())


def input_states(inputs: Sequence[OpenInput]) -> list[InputState | None]:
    """Return one state per input; None for what is no tensor, and for duplicates."""
    return [
        None if item.storage is None or item.duplicate_of is not None else input_state(item)
        for item in inputs
    ]


def write_in_backward(
    builder: Recorder, meta: ViewAndMutationMeta, before: list[InputState | None]
) -> dict[int, int]:
    """Add the final `copy_` into each input that the backward has written to.

    Returns:
        The increase of their version counters, by the identity of the node that the `copy_` writes to.

    Raises:
        UnsupportedError: the backward changed an input's sizes or strides, or wrote to an input that the
            forward changes too and that it does not reach by itself.
    """
    bumps = dict[int, int]()
    for index, (captured_input, state) in enumerate(zip(builder.inputs, before, strict=True)):
        if state is None or captured_input.storage is None or state == (now := input_state(captured_input)):
            continue
        if state.geometry != now.geometry:
            raise unsupported("metadata-mutation-in-backward", builder.span, input=captured_input.slot.name)
        if not builder.current_inputs.is_written(captured_input.storage, state.storage_version):
            continue
        target = builder.current_inputs.target(captured_input.storage)
        if captured_input.base is not None and captured_input.base != index and target is not None:
            continue  # written to through its base
        changed = index < len(meta.inputs) and meta.inputs[index]
        is_changed = changed and (changed.mutates_data or changed.mutates_metadata_or_storage)
        if target is None and (captured_input.node is None or captured_input.base is not None or is_changed):
            raise unsupported("write-in-forward-and-backward", builder.span, input=captured_input.slot.name)
        location = captured_input.storage.writes[-1].origin.location
        reason = f"the backward changes `{captured_input.slot.name}`"
        origin = Origin(
            location, "aten.copy_.default", backward=True, stage="joint", reason=reason, effect=True
        )
        target = target or captured_input.node
        assert target is not None  # rejected above
        builder.add_node(
            aten.copy_.default, (target, captured_input.storage.base), {}, captured_input.fake, origin
        )
        bumps[id(target)] = now.version - state.version
    return bumps
