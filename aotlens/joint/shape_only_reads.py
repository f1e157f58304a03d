"""Backward operators that read a value only for its sizes, and the nodes they read instead.

Invariant: the gradients are the same; the replacement has the value's sizes, strides and dtype, and nothing
reads its elements.  A value that the backward also reads for its elements, or that the caller holds, is not
replaced: it is available anyway.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from aotlens.capture.recorder import Recorder
from aotlens.ir.origin import Origin
from aotlens.ir.program import Node, with_replaced_values

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
"""Operators that read their first argument for its sizes, dtype and device."""

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
"""Operators that read the forward's argument, their second one, for its sizes."""

DEVICES = frozenset({"cpu", "cuda", "meta"})
"""Device types whose kernels behave so."""


@cache
def shape_only_arguments(op: Any) -> tuple[int, ...]:
    """Return the positions of the arguments whose elements do not matter."""
    packet = getattr(op, "overloadpacket", None)
    return (0,) if packet in FIRST else (1,) if packet in SECOND else ()


def without_shape_only_reads(
    recorder: Recorder, nodes: tuple[Node, ...], handed_out: list[Any]
) -> tuple[tuple[Node, ...], dict[int, Node]]:
    """Replace values that backward operators read only for their sizes, where nothing else needs the values.

    `handed_out` are the forward's outputs, which the caller holds.  Return the new nodes, and the replacement
    of each node that changed, by its identity.
    """
    backward = [node for node in nodes if node.origin.backward]
    asking = [(node, position) for node in backward for position in shape_only_arguments(node.op)]
    if not asking:
        return nodes, {}
    handed = {_storage(value) for value in handed_out if type(value) is Node}
    read_for_elements = {id(source) for node in backward for source in _read_for_elements(node)}
    size_only, readers = dict[int, Node](), dict[int, Node]()
    for node, position in asking:
        source = node.args[position]
        if id(source) in read_for_elements or not _is_replaceable(source) or _storage(source) in handed:
            continue
        size_only[id(node)] = instead = _size_only_node(recorder, source, node)
        args = (*node.args[:position], instead, *node.args[position + 1 :])
        readers[id(node)] = replace(node, args=args)
    inserted = (each for node in nodes for each in (size_only.get(id(node)), node) if each is not None)
    return with_replaced_values(inserted, readers)


def _read_for_elements(node: Node) -> list[Node]:
    read_for_shape = [node.args[position] for position in shape_only_arguments(node.op)]
    return [source for source in node.inputs() if not any(source is each for each in read_for_shape)]


def _storage(node: Node) -> int | None:
    val = node.val
    strided = isinstance(val, torch.Tensor) and val.layout is torch.strided
    return val.untyped_storage()._cdata if strided else None


def _is_replaceable(source: Node) -> bool:
    """Return True if the forward computes the value, with known sizes."""
    val = source.val
    if source.op is None or source.origin.backward or type(val).__name__ != "FakeTensor":
        return False
    has_known_sizes = all(isinstance(size, int) for size in (*val.shape, *val.stride()))
    return has_known_sizes and val.device.type in DEVICES


def _size_only_node(recorder: Recorder, source: Node, reader: Node) -> Node:
    val = source.val
    reason = f"has the sizes of `{source.name}`, whose values are not read"
    location = reader.origin.location
    origin = Origin(location, "aten.empty_strided.default", backward=True, stage="joint", reason=reason)
    kwargs = {"dtype": val.dtype, "device": val.device}
    with recorder.fake_mode:
        fake = torch.empty_strided(val.shape, val.stride(), **kwargs)
    args = (list(val.shape), list(val.stride()))
    return Node(recorder.name("sizes"), aten.empty_strided.default, args, kwargs, fake, origin)
