"""Data-dependent sizes in the joint program: runtime assertions, and sizes that the backward needs."""

from collections.abc import Iterable
from typing import Any

import torch

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.builder import Builder
from aotlens.capture.records import Captured
from aotlens.capture.storage import Geometry
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.ir.slots import Tangent
from aotlens.ir.symbols import symbolic_numbers_of, symbols_of
from aotlens.joint.records import JointProgram

aten = torch.ops.aten


def sizes_for_wrapper(builder: Builder, meta: ViewAndMutationMeta) -> list[Any]:
    """Return the symbols that the wrapper reads to regenerate aliases and that no input carries."""
    symbols = builder.symbols
    if not symbols.read_from_data:
        return []
    values: list[Any] = []
    for info in meta.outputs:
        values += [argument for step in info.chain for argument in step.args]
        values += _numbers(info.geometry)
    for input_info in meta.inputs:
        values += _numbers(input_info.new_geometry)
    return symbols.data_symbols(values)


def _numbers(geometry: Geometry | None) -> list[Any]:
    return [] if geometry is None else [geometry.size, geometry.stride, geometry.offset]


def check_sizes(captured: Captured, builder: Builder) -> None:
    """Add one assertion for each relation that torch deferred to run time (`torch._check`)."""
    environment, data_symbols = builder.fake_mode.shape_env, builder.symbols.read_from_data
    if environment is None or not data_symbols:
        return
    for asserts in environment.deferred_runtime_asserts.values():
        for check in asserts:
            if not check.expr.free_symbols & data_symbols:
                continue
            value = environment.create_symboolnode(check.expr)
            condition = builder.symbols.of_expression(check.expr, value)
            message = f"compiled `{captured.subject.name}`: sizes must satisfy {check.expr}"
            reason = "a data-dependent size must be as the recording assumed"
            late = any(
                builder.symbols.of_symbol(symbol).origin.backward for symbol in check.expr.free_symbols
            )
            origin = Origin(
                NO_ORIGIN, "aten._assert_scalar.default", late, stage="joint", reason=reason, effect=True
            )
            builder.add_node(aten._assert_scalar.default, (condition, message), {}, None, origin)


SIZES = frozenset({aten.sym_size.int, aten.sym_stride.int, aten.sym_storage_offset.default})


def sizes_to_save(
    joint: JointProgram, saved: tuple[Node, ...], backward: tuple[Node, ...]
) -> tuple[Node, ...]:
    """Return the sizes that partitioning saves beside `saved`: those that the values of `backward` have.

    The order is fixed.  Data-dependent sizes are included if the backward's own values have them.
    """
    if not joint.captured.is_symbolic:
        return ()
    return missing_sizes(joint, saved, backward, joint.recorded.data_symbols)


def missing_sizes(
    joint: JointProgram,
    saved: tuple[Node, ...],
    backward: tuple[Node, ...],
    among: frozenset[Any] | None = None,
) -> tuple[Node, ...]:
    """Return sizes that the forward knows, and that the nodes of `backward` need beside `saved`.

    Partitioning calls it, also for the part of a backward that runs after hooks on saved tensors.  `among`
    limits which sizes of the backward's own values count; None means all.
    """
    symbols = joint.builder.symbols
    inputs = (*saved, *(item.node for item in joint.program.inputs_of(Tangent)))
    read = {symbol for node in inputs for symbol in symbols_of(node.val)}
    if among is None or among:
        within = {symbol for node in (*inputs, *backward) for symbol in symbols_of(node.val)}
        read |= within if among is None else within & among
    numbers = [number.node.expr for node in inputs for number in symbolic_numbers_of(node.val)]
    missing = read - {number for number in numbers if number.is_symbol}
    reason = "a size that the backward's inputs contain only in sums and products"
    with joint.builder.adding("partition", reason, forward=True):
        sizes = [symbols.of_symbol(symbol) for symbol in sorted(missing, key=str)]
    saved_ids = {id(node) for node in saved}
    return tuple(
        node for node in sizes if id(node) not in saved_ids and not _size_source(node).origin.backward
    )


def _size_source(number: Node) -> Node:
    """Return the node that a size comes from: the value that it is a size of, or the size itself."""
    return number.args[0] if number.op in SIZES else number


def with_sizes(nodes: tuple[Node, ...], saved: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes, with each missing saved size inserted after the value that it is a size of.

    The sizes of inputs come first.
    """
    present = {id(node) for node in nodes}
    added = [node for node in saved if node.op is not None and id(node) not in present]
    if not added:
        return nodes
    sizes_by_value: dict[int, list[Node]] = {}
    for size in added:
        sizes_by_value.setdefault(id(size.args[0]), []).append(size)
    sizes_of_inputs = (sizes for value_id, sizes in sizes_by_value.items() if value_id not in present)
    of_inputs = (size for sizes in sizes_of_inputs for size in sizes)
    return (*of_inputs, *(each for node in nodes for each in (node, *sizes_by_value.get(id(node), ()))))
