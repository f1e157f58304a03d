"""Outputs that Inductor may compute inside another value's storage, or return as one tensor.

Inductor computes the operands of a `cat` inside the result, and an input's new value inside the input. It
removes a `clone` that would separate them, and returns a view with its base's sizes as the base itself.
Invariant: an output next to a `cat`, or next to an input that the graph mutates, has its own storage, and two
outputs are two tensors.
"""

from typing import Any

import torch
from torch import fx

from aotlens.capture.operators import aten
from aotlens.ir.program import Node, Program
from aotlens.partition.storages import is_view_operator, storage_root


def outputs_of_writes(module: fx.GraphModule) -> list[tuple[int, int]]:
    """Return the outputs that alias the value written to an input, each with that input's position."""
    inputs = {node: index for index, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    writes = module.graph.find_nodes(op="call_function", target=aten.copy_.default)
    if not writes:
        return []
    values = [
        (storage_source(write.args[1]), inputs[write.args[0]]) for write in writes if write.args[0] in inputs
    ]
    results: Any = module.graph.output_node().args[0]
    return [
        (index, input_index)
        for index, result in enumerate(results)
        for value, input_index in values
        if isinstance(result, fx.Node) and storage_source(result) is value
    ]


def views_of_outputs(module: fx.GraphModule, visible: list[int]) -> list[int]:
    """Return the visible outputs that are views of another output; call it before Inductor runs."""
    results: Any = module.graph.output_node().args[0]
    bases = [_view_base(result) if isinstance(result, fx.Node) else None for result in results]
    return [
        position
        for position in visible
        if bases[position] is not results[position]
        and any(
            bases[position] is other and results[position] is not results[index]
            for index, other in enumerate(bases)
            if index != position
        )
    ]


def storages_of_outputs(program: Program, recorded: Program | None) -> list[Node | None]:
    """Return the value that owns each output's storage, before Inductor's passes merged copies with their
    sources."""
    known = {out.slot: out.value for out in (recorded or program).outputs}
    values = [known.get(out.slot, out.value) for out in program.outputs]
    return [storage_root(value) if isinstance(value, Node) else None for value in values]


def copies_of_same_value(module: fx.GraphModule, visible: list[int], memory: list[Node | None]) -> list[int]:
    """Return the visible outputs that copy the source of another output; Inductor treats them as one
    value."""
    results: Any = module.graph.output_node().args[0]
    roots = [storage_source(result) for result in results]
    return [
        index
        for index in visible
        if memory.count(memory[index]) == 1
        and _is_tensor(results[index])
        and any(roots[index] is roots[other] for other in range(len(results)) if other != index)
    ]


def _is_tensor(result: Any) -> bool:
    return isinstance(result, fx.Node) and isinstance(result.meta.get("val"), torch.Tensor)


def _view_base(node: fx.Node) -> fx.Node:
    while is_view_operator(node.target):
        node = node.args[0]  # type: ignore[assignment]
    return node


def outputs_in_cats(module: fx.GraphModule, visible: list[int]) -> list[int]:
    """Return the outputs that are operands of a `cat`, where either is visible; call it before Inductor
    runs."""
    results: Any = module.graph.output_node().args[0]
    seen = {storage_source(results[index]) for index in visible}
    in_cats = []
    for index, result in enumerate(results):
        if _is_tensor(result):
            cats = _cats_of(result)
            if cats and (index in visible or cats & seen):
                in_cats.append(index)
    return in_cats


def _cats_of(node: fx.Node) -> set[fx.Node]:
    """Return the `cat`s of which a value is an operand, directly, through views or as a copy."""
    cats: set[fx.Node] = set()
    waiting, known = [storage_source(node)], {storage_source(node)}
    while waiting:
        for user in waiting.pop().users:
            if user.target is aten.cat.default:
                cats.add(user)
            elif _may_share_memory(user) and user not in known:
                known.add(user)
                waiting.append(user)
    return cats


def storage_source(node: Any) -> Any:
    """Return the value that a node may alias, through views and through copies that Inductor may remove."""
    while _may_share_memory(node):
        node = _source(node)
    return node


COPIES: dict[Any, int] = {
    aten.clone.default: 0,
    aten._to_copy.default: 0,
    aten.repeat.default: 0,
    aten.constant_pad_nd.default: 0,
    aten.pow.Tensor_Scalar: 0,
    aten.copy.default: 1,
    aten.slice_scatter.default: 1,
    torch.ops.prims.convert_element_type.default: 0,
}
"""By operator, the argument that it may return unchanged; Inductor then removes the operator."""
ROUNDINGS = (aten.ceil.default, aten.floor.default, aten.round.default, aten.trunc.default)


def _source(node: fx.Node) -> Any:
    return node.args[COPIES.get(node.target, 0)]


def _may_share_memory(node: Any) -> bool:
    """Return True if the value shares its source's storage, or may after Inductor removes a copy."""
    if not isinstance(node, fx.Node):
        return False
    if is_view_operator(node.target) or node.target is aten.clone.default:
        return True
    return (node.target in COPIES or node.target in ROUNDINGS) and _has_type_of(node, _source(node))


def _has_type_of(node: fx.Node, source: Any) -> bool:
    own, other = node.meta.get("val"), source.meta.get("val") if isinstance(source, fx.Node) else None
    if not isinstance(own, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return own.dtype is other.dtype and own.dim() == other.dim()
