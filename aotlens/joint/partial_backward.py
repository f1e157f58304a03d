"""The backward for some defined tangents, recorded when this combination first occurs.

Invariant: it is what autograd runs for these outputs; if no tangent is defined, what it runs for outputs
whose tangents are all None.  It differs from the full backward with zeros for the rest where a custom
function or a hook is involved.
"""

from collections.abc import Sequence
from typing import Any

import torch

from aotlens.ir.program import Node
from aotlens.joint.differentiation import differentiate, new_alias, recording_autograd, without_new_guards
from aotlens.joint.records import JointProgram

DefinedTangents = tuple[bool, ...]
"""For each tangent of the backward, whether it is defined."""


def partial_gradients(joint: JointProgram, defined: DefinedTangents) -> list[Node | None]:
    """Return the nodes of the wanted inputs' gradients; None for no gradient.

    Raises:
        UnsupportedError: an operator cannot be recorded, or a size would be specialised.
    """
    differentiated, recorder = joint.differentiated, joint.builder
    with without_new_guards(joint, "partial-backward-specialises"):
        with recorder.fake_mode:
            aliases = [new_alias(recorder, node) for node in differentiated.tangents]
        outputs, tangents = (defined_values(values, defined) for values in (differentiated.outputs, aliases))
        with recording_autograd(recorder):
            if not any(defined):
                outputs = [_UndefinedTangents.apply(*differentiated.outputs)]
                tangents = [outputs[0].detach()]
            gradients = differentiate(recorder, outputs, differentiated.leaves, tangents)
    with recorder.fake_mode, recorder.adding("joint", "a gradient, regenerated after a write"):
        return [None if tensor is None else recorder.node_of(tensor) for tensor in gradients]


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
