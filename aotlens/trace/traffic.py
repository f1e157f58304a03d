"""Derive the bytes that each call of generated code reads and writes, and the operations of matrix products.

Invariant: a buffer that a call touches counts once and whole, so the bytes are exact for kernels over whole
buffers and an upper bound for parts.  A call with a buffer of unknown size, or whose arguments do not say
which of them it writes, has no figures.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from aotlens.trace.graphs.records import Graph
from aotlens.trace.graphs.tensor_text import Hints, size_value, tensor_of
from aotlens.trace.output_code import Call, OutputCode, element_bytes

__all__ = ["Traffic", "buffers_of", "traffic_of"]

_PARAMETERS = re.compile(r"(?:def \w+|void\s+kernel)\(([^)]{1,20000})\)")
_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor that the generated code names."""

    shape: tuple[int, ...]
    element_bytes: int

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.element_bytes


@dataclass(frozen=True, slots=True)
class Traffic:
    """The figures of one call."""

    bytes_read: int
    bytes_written: int
    flops: int | None
    """Of a matrix product; None for a generated kernel."""


def buffers_of(graph: Graph | None, code: OutputCode, hints: Hints) -> dict[str, Buffer]:
    """Return the arguments of the graph and the buffers of its code, by name; not those of unknown size."""
    buffers: dict[str, Buffer] = {}
    for argument in graph.arguments if graph is not None else ():
        tensor = tensor_of(argument.type, hints)
        shape = _sizes([str(size) for size in tensor.shape], hints) if tensor is not None else None
        if tensor is not None and shape is not None and tensor.bytes is not None:
            elements = max(prod(shape), 1)
            buffers[argument.name] = Buffer(shape, max(tensor.bytes // elements, 1))
    for name, sizes, dtype in code.allocations:
        shape = _sizes([size for size in sizes.split(",") if size.strip()], hints)
        if shape is not None:
            buffers[name] = Buffer(shape, element_bytes(dtype))
    for name, base in code.renamed:
        if base in buffers:
            buffers[name] = buffers[base]
    return buffers


def traffic_of(call: Call, buffers: Mapping[str, Buffer], hints: Hints) -> Traffic | None:
    """Return the figures of one call; None where a part of them is unknown."""
    try:
        statement = ast.parse(call.text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    match statement:
        case [ast.Expr(value=ast.Call() as tree)] | [ast.Assign(value=ast.Call() as tree)]:
            reader = _Reader(buffers, hints)
            return reader.generated(call, tree) if call.is_generated else reader.library(call, tree)
    return None


class _Reader:
    """Reads the arguments of calls."""

    def __init__(self, buffers: Mapping[str, Buffer], hints: Hints) -> None:
        self._buffers = buffers
        self._hints = hints

    def generated(self, call: Call, tree: ast.Call) -> Traffic | None:
        match = _PARAMETERS.search(call.source)
        names = [part.split(":")[0].split()[-1].strip("*") for part in match[1].split(",")] if match else []
        read = written = 0
        for name, argument in zip(names, tree.args, strict=False):
            reads, writes = name.startswith("in_"), name.startswith(("out_ptr", "in_out_ptr"))
            if not reads and not writes:
                continue
            buffer = self._buffer(argument)
            if buffer is None:
                return None
            read += buffer.bytes if reads else 0
            written += buffer.bytes if writes else 0
        return Traffic(read, written, None) if read or written else None

    def library(self, call: Call, tree: ast.Call) -> Traffic | None:
        """Return the figures of a call that writes to `out`."""
        out = next((word.value for word in tree.keywords if word.arg == "out"), None)
        result = self._buffer(out) if out is not None else None
        operands = [
            self._buffer(argument) for argument in tree.args if not isinstance(argument, ast.Constant)
        ]
        known = [operand for operand in operands if operand is not None]
        if result is None or len(known) < len(operands):
            return None
        flops = None
        if call.name.rpartition(".")[2] in _PRODUCTS and len(known) >= 2 and known[-2].shape:
            flops = 2 * prod(result.shape) * known[-2].shape[-1]
        return Traffic(sum(operand.bytes for operand in known), result.bytes, flops)

    def _buffer(self, node: ast.expr) -> Buffer | None:
        match node:
            case ast.Name(id=name):
                return self._buffers.get(name)
            case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[ast.Name(id=name), sizes, *_]):
                base, shape = self._buffers.get(name), self._shape(sizes)
                if base is not None and shape is not None:
                    return Buffer(shape, base.element_bytes)
        return None

    def _shape(self, node: ast.expr) -> tuple[int, ...] | None:
        elements = node.elts if isinstance(node, ast.Tuple) else []
        return _sizes([ast.unparse(element) for element in elements], self._hints)


def _sizes(texts: list[str], hints: Hints) -> tuple[int, ...] | None:
    """Return the sizes; None if one has no value."""
    values = [size_value(text, hints) for text in texts]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None
