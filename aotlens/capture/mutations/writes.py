"""A write through a tensor as a new value of its storage.

Invariant: the inverse of each view on the written tensor's chain is recorded, from the tensor up to the base,
so that every other view of the storage reads the new value.
"""

from typing import Any

from aotlens.capture.as_strided import MAY_REPEAT, OTHER_ELEMENTS, overlaps_itself
from aotlens.capture.graph import Recording
from aotlens.capture.operators import aten
from aotlens.capture.storage import Tracked
from aotlens.capture.views import ViewStep, inverse_write, with_lazy_bits_of
from aotlens.ir.program import Node
from aotlens.unsupported import unsupported


def record_write(recording: Recording, target: Any, value: Node) -> None:
    """Update a tensor's storage with the value of a write through this tensor."""
    tracked = recording.tracked(target)
    storage = tracked.storage
    if recording.current_inputs is not None and storage.inputs:
        recording.current_inputs.note_access(tracked, is_write=True)
    recording.use_synthetic_base(storage)
    if storage.exceeds_view and _any_gradient(recording):
        # Eager's autograd replays that view on the base, ours on the view.
        raise unsupported("as-strided-beyond-written-view", recording.span)
    value = with_lazy_bits_of(recording, target, value)
    new = _value_of_base(recording, tracked, target, value)
    if storage.base_tensor.requires_grad and not target.requires_grad:
        recording.note_hidden_change(target)
    storage.base = with_lazy_bits_of(recording, storage.base.val, new)
    storage.version += 1
    storage.last_metadata_step = None
    storage.views = {tracked.chain: value} if tracked.chain else {}
    storage.writes += (recording.new_write(tracked.chain),)
    tracked.node, tracked.version = value, storage.version
    if getattr(target, "constant", None) is not None:
        recording.fake_mode.fake_tensor_converter.invalidate_constant_aliases(target.constant)


def _value_of_base(recording: Recording, tracked: Tracked, target: Any, value: Node) -> Node:
    """Return the value of the storage's base after the tensor received this value."""
    chain = _written_chain(recording, tracked, target)
    for end in range(len(chain), 0, -1):
        source, step = recording.source_of_view(tracked.storage, chain[:end])
        value = inverse_write(recording, source, step, value)
        if source is tracked.storage.base:
            break
    return value


def _written_chain(recording: Recording, tracked: Tracked, target: Any) -> tuple[ViewStep, ...]:
    """Return the views that a write passes back through; one `as_strided` if a view repeats elements.

    Raises:
        UnsupportedError: no strides over the storage's base can address the target's elements.
    """
    chain = tracked.chain
    ends = [end for end in range(1, len(chain)) if chain[end - 1].op in MAY_REPEAT]
    if not any(overlaps_itself(recording.replay(tracked.storage, chain[:end]).val) for end in ends):
        return chain
    if any(step.op in OTHER_ELEMENTS for step in chain):
        raise unsupported("write-to-repeated-elements", recording.span)
    geometry = (list(target.shape), list(target.stride()), target.storage_offset())
    return (ViewStep(aten.as_strided.default, geometry, offset=geometry[2]),)


def _any_gradient(recording: Recording) -> bool:
    on_arguments = any(getattr(value, "requires_grad", False) for value in recording.originals.values())
    return on_arguments or bool(recording.real_tensors.inputs)
