"""The backward for some defined tangents, recorded when this combination first occurs.

Invariant: it is what autograd runs for these outputs; if no tangent is defined, what it runs for outputs
whose tangents are all None.  It differs from the full backward with zeros for the rest where a custom
function or a hook is involved.
"""

from collections.abc import Sequence
from typing import Any

import torch

from aotlens.capture.error_translation import translated_errors
from aotlens.capture.recorder import Recorder
from aotlens.capture.run import call_boundary, recording
from aotlens.capture.storage import Storage
from aotlens.ir.program import Node
from aotlens.joint.leaves import gradients_of
from aotlens.joint.records import JointProgram
from aotlens.torch_api.modes import without_autocast
from aotlens.unsupported import unsupported

DefinedTangents = tuple[bool, ...]
"""For each tangent of the backward, whether it is defined."""


def partial_gradients(joint: JointProgram, defined: DefinedTangents) -> list[Node | None]:
    """Return the nodes of the wanted inputs' gradients; None for no gradient.

    Raises:
        UnsupportedError: an operator cannot be recorded, or a size would be specialised.
    """
    differentiated, recorder = joint.differentiated, joint.builder
    guards = guard_count(recorder)
    with recorder.fake_mode:
        tangents = [alias_of(recorder, node) for node in differentiated.tangents]
    indices = [index for index, is_defined in enumerate(defined) if is_defined]
    dynamic = recorder.fake_mode.shape_env is not None
    with recording(recorder, dynamic), translated_errors(recorder), torch.enable_grad(), without_autocast():
        outputs, defined_tangents = (
            [differentiated.outputs[index] for index in indices],
            [tangents[index] for index in indices],
        )
        if not indices:
            outputs = [_UndefinedTangents.apply(*differentiated.outputs)]
            defined_tangents = [outputs[0].detach()]
        gradients = call_boundary(
            lambda: gradients_of(outputs, list(differentiated.leaves), defined_tangents, recorder)
        )
    if guard_count(recorder) != guards:
        raise unsupported("partial-backward-specialises", joint.captured.subject.span)
    with recorder.fake_mode, recorder.adding("joint", "a gradient, regenerated after a write"):
        return [None if tensor is None else recorder.node_of(tensor) for tensor in gradients]


def guard_count(recorder: Recorder) -> int:
    """Return the number of guards on symbolic sizes so far."""
    environment = recorder.fake_mode.shape_env
    return 0 if environment is None else len(environment.guards)


def alias_of(recorder: Recorder, node: Node) -> Any:
    """Return a new fake tensor that the recording tracks as the node's value, on a storage of its own."""
    alias = node.val.detach()
    recorder.track(alias, Storage(node, alias))
    return alias


class _UndefinedTangents(torch.autograd.Function):
    """Makes autograd run the backward of tensors whose tangents are None."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        ctx.count = len(tensors)
        return tensors[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None,) * ctx.count


def defined_values(values: Sequence[Any], defined: DefinedTangents | None) -> list[Any]:
    """Return the values whose tangents are defined, None for the others; all values if `defined` is None."""
    if defined is None:
        return list(values)
    return [value if is_defined else None for value, is_defined in zip(values, defined, strict=True)]
