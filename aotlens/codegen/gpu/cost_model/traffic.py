"""The memory traffic of a call, by value, from Inductor's own record of its accesses.

Invariant: an element counts once per call, as if caches were perfect; a value that is produced and consumed
within one kernel counts nothing; a gather counts the elements that it reads, at most the whole source.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any

from torch import fx

from aotlens.codegen.gpu.cost_model.loop_flops import loop_work
from aotlens.codegen.gpu.cost_model.node_flops import program_node_name, readers
from aotlens.codegen.gpu.records import Access, NodeWork
from aotlens.torch_api.symbolic import unbacked_symbols

SECTOR = 32
"""The smallest memory transfer in bytes, on every GPU of the table."""

RANDOM_OPS = frozenset({"aten::bernoulli.p", "aten::rand_like", "aten::randn_like", "aten::randint_like"})

UNKNOWN_EXTENT = 1 << 62

Steps = list[tuple[int, int]]
"""A walk over memory: the stride, in elements, and the size of each loop."""


@dataclass(frozen=True, slots=True)
class _Region:
    """The part of a buffer that one access covers."""

    bytes: int
    sector_bytes: int
    """Bytes of the sectors that hold it."""
    is_gather: bool = False


@dataclass(slots=True)
class _BufferAccess:
    """The accesses of one call to one buffer; mutable while they are collected."""

    regions: dict[Any, _Region] = field(default_factory=dict)
    """By index expression, so that equal accesses count once."""
    origins: dict[fx.Node, None] = field(default_factory=dict)
    """Graph nodes, including those that access the buffer."""


class Traffic:
    """The accesses of the calls of one graph, while Inductor generates it."""

    def __init__(self, modules: SimpleNamespace) -> None:
        self._graph = modules.v.graph
        environment = self._graph.sizevars.shape_env
        self._unknown = unbacked_symbols(environment) if environment is not None else set()
        self.is_known = True
        """Whether all sizes so far are the example's; False where one depends on data."""

    def kernel_accesses(self, members: list[Any], kernel: Any) -> Iterator[Access]:
        """Yield the accesses of a generated kernel, from the scheduler's nodes that it computes."""
        inputs, outputs = _arguments(kernel)
        real = self._graph.scheduler.mutation_real_name
        # what the kernel itself writes counts once, as a write
        own_writes = {dep.name for node in members for dep in node.read_writes.writes}
        reads: dict[str, _BufferAccess] = {}
        writes: dict[str, _BufferAccess] = {}
        for node in members:
            read = [dep for dep in node.read_writes.reads if dep.name not in own_writes]
            for deps, by_buffer, live in ((read, reads, inputs), (node.read_writes.writes, writes, outputs)):
                for dep in deps:
                    name = real.get(dep.name, dep.name)
                    if name in live:
                        touched = by_buffer.setdefault(name, _BufferAccess())
                        touched.regions.update([self._region(dep, node)])
                        touched.origins.update(dict.fromkeys(node.node.origins))
        yield from self._accesses(reads, False)
        yield from self._accesses(writes, True)

    def library_accesses(self, call: Any, origins: Iterable[fx.Node]) -> Iterator[Access]:
        """Yield the accesses of a library call or a user's kernel, from the layouts of its operands and
        outputs.

        A user's kernel may also read what it writes; that is unknown.
        """
        by = dict.fromkeys(origins)
        reads: dict[str, _BufferAccess] = {}
        writes: dict[str, _BufferAccess] = {}
        outputs = flat(getattr(call, "outputs", None) or call.get_outputs())
        # attention has number outputs too
        results = [output for output in outputs if hasattr(output, "get_name")]
        changed = _mutated_buffers(call, results)
        only_written = changed if is_user_kernel(call) else set()
        for operand in () if _only_sizes(call) else flat(call.inputs):
            if operand.get_name() not in only_written:
                self._add_layout(reads, operand, by)
        for result in (*results, *map(self._graph.get_buffer, sorted(changed))):
            self._add_layout(writes, result, by)
        yield from self._accesses(reads, False)
        yield from self._accesses(writes, True, frozenset(changed))

    def partial_sum_accesses(
        self, kernel: Any, call: int
    ) -> tuple[list[Access], list[tuple[Access, Access]]]:
        """Return the partial sums that a kernel writes, and the read and write of each sum that the wrapper
        adds."""
        sums = getattr(kernel, "saved_partial_accumulate", ())
        if not sums:
            return [], []
        space = kernel.args.workspace_args[0]
        size = self._number(space.count) * space.dtype.itemsize // len(sums)
        partial_writes, finished = [], []
        for index, partial_sum in enumerate(sums):
            value = self._value(partial_sum.buffer_name)
            name = program_node_name(value) if value is not None else ""
            by = (name,) if name else ()
            number = self._number(self._graph.get_numel(partial_sum.buffer_name))
            output_bytes = number * self._graph.get_dtype(partial_sum.buffer_name).itemsize
            buffer = f"{space.outer_name} of call {call}, {index}"
            partial_writes.append(Access(buffer, "", True, size, size, by))
            read = Access(buffer, "", False, size, size, by)
            finished.append(
                (read, Access(partial_sum.buffer_name, name, True, output_bytes, output_bytes, by))
            )
        return partial_writes, finished

    def work(self, member: Any) -> list[NodeWork]:
        """Return the work of one of the scheduler's nodes in a generated kernel."""
        read = [dep.name for dep in member.read_writes.reads]
        is_second_step = bool(read) and all(self._value(name) is None for name in read)
        return loop_work(member, is_second_step, self._number)

    def _region(self, dep: Any, node: Any) -> tuple[Any, _Region]:
        """Return the region of one access of a scheduler's node, under a key that equal accesses share."""
        name = self._graph.scheduler.mutation_real_name.get(dep.name, dep.name)
        whole = self._number(self._graph.get_numel(name))
        item = self._graph.get_dtype(name).itemsize
        if not hasattr(dep, "var_names"):  # it may access the whole buffer
            return "all", _Region(whole * item, whole * item)
        dep = dep.normalize_with_stride_order()
        sizes = {var: self._number(size) for var, size in zip(dep.var_names, dep.size, strict=True)}
        if dep.is_indirect():
            elements = prod(self._number(size) for ranges in node.get_ranges() for size in ranges)
        else:
            elements = prod(size for var, size in sizes.items() if var in dep.index.free_symbols)
        elements = min(elements, whole)
        steps = _steps(dep.index, sizes, dep.is_indirect())
        return (dep.index, dep.size), _Region(
            elements * item, _sectors(elements, item, steps) * SECTOR, dep.is_indirect()
        )

    def _add_layout(self, by_buffer: dict[str, _BufferAccess], value: Any, by: dict[fx.Node, None]) -> None:
        """Add an operand or output of a library call: the elements of its layout."""
        layout = _layout(value)
        if layout is None:
            return
        steps = [
            (self._number(step), self._number(size))
            for step, size in zip(layout.stride, layout.size, strict=True)
        ]
        size = prod(size for step, size in steps if step != 0) * layout.dtype.itemsize
        touched = by_buffer.setdefault(value.get_name(), _BufferAccess())
        touched.regions[tuple(steps), layout.offset] = _Region(size, size)
        touched.origins.update(by)

    def _accesses(
        self, by_buffer: dict[str, _BufferAccess], written: bool, changed: frozenset[str] = frozenset()
    ) -> Iterator[Access]:
        """Yield the accesses; a changed value is attributed to the call and not to the node that produced
        it."""
        for name, touched in by_buffer.items():
            most = self._extent(name)
            size = min(sum(region.bytes for region in touched.regions.values()), most)
            sectors = min(sum(region.sector_bytes for region in touched.regions.values()), most)
            value = self._value(name)
            by: Iterable[fx.Node] = touched.origins
            if value is not None and name not in changed:
                by = [value] if written else list(readers(value, frozenset(touched.origins))) or by
            yield Access(
                buffer=name,
                node=program_node_name(value) if value is not None else "",
                written=written,
                bytes=size,
                sector_bytes=max(sectors, size),
                by=tuple(dict.fromkeys(filter(None, map(program_node_name, by)))),
                is_gather=any(region.is_gather for region in touched.regions.values()),
            )

    def _value(self, buffer: str) -> fx.Node | None:
        """Return the graph node whose value a buffer holds; None for a buffer that Inductor added."""
        if buffer in self._graph.graph_inputs:
            module = self._graph.module
            return next(iter(module.graph.find_nodes(op="placeholder", target=buffer)), None)
        value = self._graph.try_get_buffer(buffer)
        return None if value is None else value.get_origin_node()

    def _extent(self, buffer: str) -> int:
        """Return the bytes from a buffer's first element to its last."""
        layout = _layout(self._graph.try_get_buffer(buffer))
        if layout is None:
            return UNKNOWN_EXTENT
        reach = [
            (self._number(size) - 1) * self._number(step)
            for size, step in zip(layout.size, layout.stride, strict=True)
        ]
        return (sum(reach) + 1) * int(layout.dtype.itemsize)

    def _number(self, expression: Any) -> int:
        """Return a size at the example's values."""
        if self._unknown and not self._unknown.isdisjoint(getattr(expression, "free_symbols", ())):
            self.is_known = False
            return 1
        return int(self._graph.sizevars.optimization_hint(expression, fallback=1))


def _mutated_buffers(call: Any, outputs: Iterable[Any]) -> set[str]:
    """Return the existing buffers that a call writes to.

    Some calls name them (`index_put_`). For a custom operator or a user's kernel, Inductor adds an output
    without a layout (`MutationOutput`) for each, which names the buffer.
    """
    added = [output for output in outputs if output is not call]
    return {name for value in (call, *added) for name in value.get_mutation_names()}


def _only_sizes(call: Any) -> bool:
    """Return True if a library call reads only its argument's sizes: a random operator."""
    operator = getattr(call, "op_overload", None)
    return operator is not None and operator.name() in RANDOM_OPS


def is_user_kernel(call: Any) -> bool:
    """Return True if the call is of a Triton kernel that the user wrote."""
    return hasattr(call, "mutable_args")


def _layout(value: Any) -> Any:
    """Return sizes, strides and dtype of an Inductor value; None if it is not a tensor."""
    layout = value.maybe_get_layout() if hasattr(value, "maybe_get_layout") else None
    return layout if hasattr(layout, "stride") else None


def _arguments(kernel: Any) -> tuple[set[str], set[str]]:
    """Return the buffers that a kernel may read, and those that it may write."""
    inputs = {name for name, inner in kernel.args.input_buffers.items() if isinstance(inner, str)}
    outputs = {name for name, inner in kernel.args.output_buffers.items() if isinstance(inner, str)}
    changed = {
        name
        for inplace_buffer in kernel.args.inplace_buffers.values()
        for name in getattr(inplace_buffer, "other_names", ())  # a removed buffer has none
    }
    return inputs | changed, outputs | changed


def _steps(index: Any, sizes: dict[Any, int], is_indirect: bool) -> Steps:
    """Return the loops of an access; those of a gather without its indices, which may point anywhere."""
    steps = []
    for term in index.expand().as_ordered_terms():
        used = [var for var in sizes if var in term.free_symbols]
        if len(used) == 1 and (step := term / used[0]).is_Integer:
            steps.append((abs(int(step)), sizes[used[0]]))
        elif used or not (is_indirect or term.is_Integer):
            return []  # not linear: assume contiguous elements
    return [*steps, (1 << 30, 1 << 30)] if is_indirect else steps


def _sectors(elements: int, item: int, steps: Steps) -> int:
    """Return how many sectors hold the elements that the loops visit."""
    stretch, gap = 1, 0
    for step, size in sorted(steps):
        if size > 1 and step > stretch:
            gap = step
            break
        stretch += step * (size - 1) if size > 1 else 0
    if not steps or not gap or stretch * item >= SECTOR:
        return -(-elements * item // SECTOR)
    return -(-elements // stretch) * min(SECTOR, gap * item) // SECTOR


def flat(values: Any) -> Iterator[Any]:
    """Yield the items of nested lists, without None."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from flat(value)
        elif value is not None:
            yield value
