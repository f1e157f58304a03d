"""Leaves that the autograd function takes although no graph reads them.

Invariant: autograd puts each gradient on the tensor that the caller holds, with the sizes of that tensor
after the call.
"""

from typing import Any

import torch

from aotlens.analysis.records import InputAliasInfo, InputBase, OutputAliasInfo
from aotlens.capture.records import CapturedInput
from aotlens.capture.storage import span_of_writes
from aotlens.ir.render import Names, literal
from aotlens.ir.slots import Gradient, LeafGradient
from aotlens.partition.records import Partitioned
from aotlens.runtime.graph_text import view_text
from aotlens.runtime.module_text import TextBuilder
from aotlens.unsupported import unsupported

ANCHOR = "anchor"
"""A leaf for functions without an input that gets a gradient, so that outputs can require grad."""

ANCHOR_REASON = "no input gets a gradient, but outputs require grad"


def reshaped_leaves(parts: Partitioned) -> tuple[InputAliasInfo, ...]:
    """Return the leaves whose new sizes autograd must see, since it checks their gradients against them."""
    if parts.backward is None:
        return ()
    return tuple(info for info in parts.joint.meta.inputs if info.is_reshaped_leaf)


def inputs_without_graph_use(parts: Partitioned) -> list[CapturedInput]:
    """Return the inputs that autograd sends gradients to while the graph takes their base."""
    inputs = parts.joint.captured.inputs
    return [
        captured_input
        for captured_input in inputs
        if captured_input.base is not None and captured_input.has_own_gradient
    ]


def leaf_outputs(parts: Partitioned) -> tuple[OutputAliasInfo, ...]:
    """Return the outputs that the function made leaves of, and that have a gradient in the backward."""
    if parts.backward is None:
        return ()
    indices = {out.slot.index for out in parts.backward.outputs if isinstance(out.slot, LeafGradient)}
    return tuple(info for info in parts.joint.meta.outputs if info.index in indices)


def created_leaves(parts: Partitioned) -> list[str]:
    """Return the names of the leaves that the wrapper makes for the call of the autograd function."""
    names = [f"leaf_{info.index}" for info in leaf_outputs(parts)]
    if names or parts.backward is None:
        return names
    has_gradient = any(out.value is not None for out in parts.backward.outputs)
    if parts.joint.always_fails:  # only inputs that the autograd graph reaches keep their `grad_fn`
        has_gradient = any(
            tangents for (kind, _), tangents in parts.joint.dependence.tangents.items() if kind is Gradient
        )
    elif parts.joint.failing is not None:  # autograd calls it from any input that requires grad
        has_gradient = has_gradient or any(
            captured_input.requires_grad for captured_input in parts.joint.captured.inputs
        )
    return [] if has_gradient else [ANCHOR]


def write_leaf_output(builder: TextBuilder, parts: Partitioned, info: OutputAliasInfo) -> None:
    """Write the lines that make an output the leaf that autograd was given, or a leaf of its own."""
    out, leaf = f"out_{info.index}", f"leaf_{info.index}"
    if info not in leaf_outputs(parts):
        parameter = isinstance(info.tensor, torch.nn.Parameter)
        builder.add(f"{out} = torch.nn.Parameter({out})" if parameter else f"{out}.requires_grad_()")
        return
    if not isinstance(info.base, InputBase):
        builder.add(f"{leaf}.data = {out}")
    builder.add(f"{out} = {leaf}")


def write_leaves(builder: TextBuilder, parts: Partitioned, names: Names, arguments: list[str]) -> None:
    """Write the lines that make the leaves of `created_leaves`."""
    leaf_names = created_leaves(parts)
    if not leaf_names:
        return
    reason = ANCHOR_REASON if leaf_names == [ANCHOR] else "the function calls requires_grad_ itself"
    with builder.step("make leaves", reason):
        if leaf_names == [ANCHOR]:
            builder.add(f"{ANCHOR} = torch.empty(0, requires_grad=True)")
        for info in leaf_outputs(parts):
            text = _leaf(parts, info, names, arguments)
            parameter = isinstance(info.tensor, torch.nn.Parameter)
            builder.add(f"leaf_{info.index} = {f'torch.nn.Parameter({text})' if parameter else text}")


def _leaf(parts: Partitioned, info: OutputAliasInfo, names: Names, arguments: list[str]) -> str:
    if not isinstance(info.base, InputBase):
        tensor: Any = info.tensor
        sizes = f"{literal(tuple(tensor.shape), names)}, {literal(tuple(tensor.stride()), names)}"
        kind = f"dtype={tensor.dtype}, device={str(tensor.device)!r}"
        return f"torch.empty_strided({sizes}, {kind}, requires_grad=True)"
    under = parts.joint.meta.inputs[info.base.index]
    if under.mutates_metadata_or_storage:
        name = parts.joint.captured.inputs[under.index].slot.name
        raise unsupported(
            "requires-grad-of-changed-view",
            span_of_writes(list(under.writes)) or parts.joint.captured.subject.span,
            input=name,
        )
    text = arguments[info.base.index]
    detach_text = ".data" if info.has_own_version else ".detach()"
    text += detach_text if info.detached_after == 0 else ""
    for position, step in enumerate(info.chain, 1):
        text = view_text(step, text, names)
        text += detach_text if info.detached_after == position else ""
    return f"{text}.requires_grad_()"
