"""Changes of nodes that are recorded already: an input becomes a view of its base, a value another tensor.

Invariant: no program contains the nodes yet.  A new node could not replace one: the tensors, and the nodes
that read it, refer to this one.
"""

from typing import Any

from aotlens.capture.graph import Recording
from aotlens.capture.storage import Storage, Write
from aotlens.ir.program import Node


def note_metadata_mutation(recording: Recording, storage: Storage, mutation: Write) -> None:
    """Note a change of a tensor's sizes, strides or storage.

    Autograd may regenerate the `grad_fn` of overlapping inputs afterwards, on their base.
    """
    use_synthetic_base(recording, storage)
    storage.metadata_mutations += (mutation,)


def use_synthetic_base(recording: Recording, storage: Storage) -> None:
    """Turn overlapping graph inputs into views of their synthetic base, as if they had always been.

    The first write or metadata mutation of one does so; until then the graph takes each by itself.
    """
    if storage.on_base or not storage.overlapping_inputs:
        return
    storage.on_base = True
    nodes, reason = recording.nodes, "an input that overlaps another, as a view of their synthetic base"
    for chain, input_node in storage.overlapping_inputs.items():
        first = len(nodes)
        made = storage.base
        with recording.adding("capture", reason):
            for step in chain:
                made = step.apply(recording, made)
        views = nodes[first:]
        del nodes[first:]
        _amend(input_node, op=made.op, args=made.args, kwargs=made.kwargs, origin=made.origin)
        nodes[0:0] = [*views[:-1], input_node]


def preserve_values(recording: Recording, tensor: Any) -> None:
    """Detach the values of nodes whose tensor is about to become another in place."""
    for node in recording.nodes:
        if node.val is tensor:
            _amend(node, val=tensor.detach())


def _amend(node: Node, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(node, name, value)
