"""Backward operators that take a value for its sizes only, or not at all, and what they are given instead.

Invariant: the gradients are the same; the stand-in has the value's sizes, strides and type, and nobody reads
its numbers.  A value that the backward reads for its numbers too, or that the caller holds, stays in place:
it is at hand anyway.
"""

from functools import cache
from typing import Any

import torch

from aotlens.capture.recorder import Recorder
from aotlens.ir.origin import Origin
from aotlens.ir.program import Node

aten = torch.ops.aten

FIRST = frozenset(
    {
        aten.empty_like,
        aten.full_like,
        aten.new_empty,
        aten.new_empty_strided,
        aten.new_full,
        aten.new_ones,
        aten.new_zeros,
        aten.ones_like,
        aten.rand_like,
        aten.randn_like,
        aten.zeros_like,
    }
)
"""These ask their first argument for its sizes, type and device."""

SECOND = frozenset(
    {
        aten._adaptive_avg_pool2d_backward,
        aten._adaptive_avg_pool3d_backward,
        aten.adaptive_max_pool2d_backward,
        aten.adaptive_max_pool3d_backward,
        aten.avg_pool2d_backward,
        aten.avg_pool3d_backward,
        aten.fractional_max_pool2d_backward,
        aten.fractional_max_pool3d_backward,
        aten.max_pool2d_with_indices_backward,
        aten.max_pool3d_with_indices_backward,
        aten.nll_loss2d_backward,
        aten.nll_loss_backward,
        aten.reflection_pad1d_backward,
        aten.reflection_pad2d_backward,
        aten.reflection_pad3d_backward,
        aten.replication_pad1d_backward,
        aten.replication_pad2d_backward,
        aten.replication_pad3d_backward,
    }
)
"""These ask the forward's argument, their second one, for its sizes: where to write, the gradient tells."""

RUNNING, TRAINING = slice(3, 5), 7
"""Of batch norm's backward: the running statistics, which it does not read where the next flag is set."""

DEVICES = frozenset({"cpu", "cuda", "meta"})
"""Where that holds of their kernels."""


@cache
def shape_only_arguments(op: Any) -> tuple[int, ...]:
    """The positions of the arguments whose numbers do not matter."""
    packet = getattr(op, "overloadpacket", None)
    return (0,) if packet in FIRST else (1,) if packet in SECOND else ()


def replace_shape_only_reads(recorder: Recorder, handed_out: list[Any]) -> None:
    """Give backward operators stand-ins for what they take for its sizes only, where nothing else needs it.

    The nodes are changed in place: none of them is in a program yet.
    """
    backward = [node for node in recorder.nodes if node.origin.backward]
    for node in backward:
        if node.op is aten.native_batch_norm_backward.default and node.args[TRAINING] is True:
            own = (*node.args[: RUNNING.start], None, None, *node.args[RUNNING.stop :])
            object.__setattr__(node, "args", own)
    asking = [node for node in backward if shape_only_arguments(node.op)]
    if not asking:
        return
    handed = {_storage(value) for value in handed_out if type(value) is Node}
    read_for_numbers = {id(source) for node in backward for source in _read_for_numbers(node)}
    for node in asking:
        for position in shape_only_arguments(node.op):
            source = node.args[position]
            if (
                id(source) not in read_for_numbers
                and _is_replaceable(source)
                and _storage(source) not in handed
            ):
                stand_in = _size_only_node(recorder, source, node)
                recorder.nodes.insert(recorder.nodes.index(node), stand_in)
                args = (*node.args[:position], stand_in, *node.args[position + 1 :])
                object.__setattr__(node, "args", args)


def _read_for_numbers(node: Node) -> list[Node]:
    sizes = [node.args[position] for position in shape_only_arguments(node.op)]
    return [source for source in node.inputs() if not any(source is each for each in sizes)]


def _storage(node: Node) -> int | None:
    val = node.val
    strided = isinstance(val, torch.Tensor) and val.layout is torch.strided
    return val.untyped_storage()._cdata if strided else None


def _is_replaceable(source: Node) -> bool:
    """Whether the forward computes it, with sizes that are known."""
    val = source.val
    if source.op is None or source.origin.backward or type(val).__name__ != "FakeTensor":
        return False
    known = all(isinstance(size, int) for size in (*val.shape, *val.stride()))
    return known and val.device.type in DEVICES


def _size_only_node(recorder: Recorder, source: Node, reader: Node) -> Node:
    val = source.val
    reason = f"has the sizes of `{source.name}`, whose numbers nobody reads"
    location = reader.origin.location
    origin = Origin(location, "aten.empty_strided.default", backward=True, stage="joint", reason=reason)
    kwargs = {"dtype": val.dtype, "device": val.device}
    with recorder.fake_mode:
        fake = torch.empty_strided(val.shape, val.stride(), **kwargs)
    args = (list(val.shape), list(val.stride()))
    return Node(recorder.name("sizes"), aten.empty_strided.default, args, kwargs, fake, origin)
