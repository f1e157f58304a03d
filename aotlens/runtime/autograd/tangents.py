"""Module text of the backward's tangents: zeros where undefined, the traced strides and subclasses.

Invariant: a tangent of another subclass is coerced by the subclass itself, or rejected with the name of the
method that the subclass lacks.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from aotlens.capture.storage import storage_range_of
from aotlens.ir.program import Node, Program, ancestors
from aotlens.ir.render import Names, context_text, literal
from aotlens.ir.slots import GRADIENTS, Tangent, outer_slot
from aotlens.ir.subclasses import Wrapped
from aotlens.partition.records import Partitioned
from aotlens.runtime.graph_runs import uses_functional_rng
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.subclasses import (
    OuterOutput,
    Path,
    inner_name,
    size_sources,
    symbols_in,
    symbols_of,
    unwrap,
    wrap_text,
)
from aotlens.runtime.tensor_guards import lazy_bits

COERCION = """
def fitting_tangent(tangent, kind, context, name):
    actual = type(tangent)
    wraps = hasattr(actual, "__tensor_flatten__")
    metadata = tangent.__tensor_flatten__()[1] if wraps else None
    if (actual is kind if wraps else kind is torch.Tensor) and metadata == context:
        return tangent
    coerce = getattr(tangent, "__coerce_same_metadata_as_tangent__", None)
    if coerce is not None:
        coerced = coerce(context) if actual is kind else coerce(context, kind)
        if coerced is not None:
            return coerced
    raise RuntimeError(
        "During the backward, we encountered a tensor subclass where we guessed its metadata incorrectly. "
        f"The gradient of `{name}` was expected as {kind.__name__} with metadata {context}, and came as "
        f"{actual.__name__} with metadata {metadata}: {actual.__name__} must implement "
        "__coerce_same_metadata_as_tangent__"
    )
"""
"""Module text of the check and its slow path."""


@dataclass(frozen=True, slots=True)
class TangentText:
    """One tangent that autograd passes to the backward."""

    parameter: str
    name: str
    """The user's name of the output."""
    output: OuterOutput
    nodes: tuple[Node, ...]
    """The inner graph inputs; none if the output is not differentiable, or if its backward fails."""
    wrapped: Wrapped | None = None
    differentiable: bool = True
    index: int = -1
    """Among the tangents of the joint program; -1 for an output that is not differentiable."""


class BackwardWrappers:
    """Writes how one target's backward receives tangents and returns gradients, plain or wrappers.

    For plain tensors it writes only zeros, and the check that they are no wrappers where one would fail.
    """

    def __init__(self, parts: Partitioned, backward: Program, names: Names, compiled: bool = False) -> None:
        self._parts = parts
        self._backward = backward
        self._checks_plain = compiled
        """A backend's code computes on plain tensors only; our own text accepts a wrapper."""
        self._names = names
        self._gradients = parts.joint.wrapped_gradients
        self._wrapped = parts.joint.wrapped_tangents
        self.needed = bool(self._gradients) or any(self._wrapped)
        """True if a gradient or tangent is a wrapper; the backward then has all sizes by name."""

    def tangents(self, outputs: list[OuterOutput]) -> list[TangentText]:
        """Return the parameters of the backward, one per output that autograd sees."""
        joint = self._parts.joint
        nodes = (graph_input.node for graph_input in joint.program.inputs_of(Tangent))
        wrapped = enumerate(self._wrapped)
        index_of = {id(out): index for index, out in enumerate(joint.forward_outputs)}
        texts = []
        for out in outputs:
            name = outer_slot(out.inner[0].slot).name
            if not joint.differentiable[index_of[id(out.inner[0])]]:
                texts.append(TangentText(f"_{out.name}", name, out, (), differentiable=False))
                continue
            tangent_index, like = next(wrapped)
            if tangent_index in joint.failing_tangents:
                texts.append(TangentText(f"tangent_{out.name}", name, out, (), index=tangent_index))
                continue
            inner_nodes = tuple(next(nodes) for _ in (like.nodes() if like is not None else (None,)))
            parameter = self._names.node(inner_nodes[0]) if like is None else f"tangent_{out.name}"
            texts.append(TangentText(parameter, name, out, inner_nodes, like, index=tangent_index))
        return texts

    def write_functions(self, builder: TextBuilder) -> None:
        """Write the functions of the module that the backward calls."""
        if any(self._wrapped) or self._checks_plain or self._gradients:
            builder.add("", *COERCION.splitlines())
        if self._gradients:
            symbols = "".join(f", {symbol}" for symbol in self._symbols)
            builder.add("", "")
            with builder.block(f"def wrap_gradients(gradients{symbols}):"):
                builder.add(f"return ({', '.join(self._gradient_texts())},)")

    def _gradient_texts(self) -> list[str]:
        by_slot: dict[tuple[type, int], dict[Path, int]] = {}
        for position, out in enumerate(self._backward.outputs):
            if isinstance(out.slot, GRADIENTS):
                by_slot.setdefault((type(out.slot), out.slot.index), {})[out.slot.inner] = position
        texts = []
        for which, positions in by_slot.items():
            like = self._gradients.get(which)
            if like is None:
                texts.append(f"gradients[{positions[()]}]")
                continue
            inner = lambda path, node, indices=positions: f"gradients[{indices[path]}]"
            texts.append(wrap_text(like, inner, self._names))
        if uses_functional_rng(self._backward):
            texts.append("gradients[-1]")
        return texts

    @cached_property
    def _symbols(self) -> list[str]:
        """The sizes that the backward's text names."""
        symbols: set[str] = set()
        for wrapped in (*self._gradients.values(), *(like for like in self._wrapped if like is not None)):
            symbols |= symbols_of(wrapped).union(*map(_size_symbols, wrapped.nodes()))
        if self.needed:
            tangents = self._parts.joint.program.inputs_of(Tangent)
            symbols = symbols.union(*(_size_symbols(tangent.node) for tangent in tangents))
        return sorted(symbols)

    def write_forward(self, builder: TextBuilder, outputs: list[OuterOutput]) -> None:
        """Read the sizes that wrapping needs, and save what the backward needs of the outputs."""
        wrapped = [out.wrapped for out in outputs if out.wrapped is not None]
        unread = set(self._symbols).union(*map(symbols_of, wrapped))
        for symbol, source in size_sources(self._parts.joint.captured, self._names):
            if symbol in unread:
                builder.add(f"{symbol} = {source}")
                unread.discard(symbol)
        if self._symbols:
            builder.add(f"ctx.symbols = ({', '.join(self._symbols)},)")
        if len(self._wrapped) > 1:
            for out in outputs:
                for path, _ in self._unmade(out):
                    name = inner_name(out.name, path)
                    builder.add(f"ctx.{name} = {name}")

    def _unmade(self, out: OuterOutput) -> list[tuple[Path, Node]]:
        """Return inner tensors of an output that no gradient can provide: offsets and other indices."""
        if out.wrapped is None:
            return []
        return [(path, node) for path, node in out.wrapped.leaves() if not _is_differentiable_dtype(node)]

    @cached_property
    def _inside_wrappers(self) -> set[int]:
        """The nodes that wrapped gradients are computed from: a wrapper there would be nested in another."""
        wrapped = [
            out.value
            for out in self._backward.outputs
            if isinstance(out.slot, GRADIENTS) and (type(out.slot), out.slot.index) in self._gradients
        ]
        return ancestors(wrapped, self._backward.nodes) if wrapped else set()

    def saved_arguments(self) -> list[str]:
        """Return the wrappers that a second derivative would reach: saved besides their inner tensors."""
        read = {id(graph_input.node) for graph_input in self._backward.inputs}
        return [
            self._names.node(captured_input.node)
            for captured_input in self._parts.joint.captured.inputs
            if captured_input.wrapped is not None
            and captured_input.requires_grad
            and captured_input.node is not None
            if any(id(node) in read for node in captured_input.wrapped.nodes())
        ]

    def read_symbols(self, builder: TextBuilder, source: str = "ctx.symbols") -> None:
        if self._symbols:
            builder.unpack(self._symbols, source)

    def also_seen(self, tangents: list[TangentText]) -> list[str]:
        """Return what autograd must see of a recorded backward, in addition to the graph's own inputs."""
        outer = [tangent.parameter for tangent in tangents if tangent.wrapped is not None]
        symbols = ["ctx.symbols"] if self._symbols else []
        return [*self.saved_arguments(), *outer, *symbols]

    def wrapped_call(self, call: str) -> str:
        if not self._gradients:
            return call
        return f"wrap_gradients({', '.join((call, *self._symbols))})"

    def write_zeros(self, builder: TextBuilder, tangent: TangentText, index: int) -> None:
        """Materialise zeros for the undefined tangent of the output at `index`."""
        with builder.block(f"if {tangent.parameter} is None:"):
            if tangent.wrapped is None:
                val = tangent.nodes[0].val
                has_known_sizes = self.needed or not _size_symbols(tangent.nodes[0])
                zeros = self._zeros(val) if has_known_sizes else _zeros_like_result(index)
                builder.add(f"{tangent.parameter} = {zeros}")
                return
            inner_text = lambda path, node: (
                self._zeros(node.val)
                if _is_differentiable_dtype(node)
                else f"ctx.{inner_name(tangent.output.name, path)}"
            )
            builder.add(f"{tangent.parameter} = {wrap_text(tangent.wrapped, inner_text, self._names)}")

    def _zeros(self, val: Any) -> str:
        size, stride = literal(tuple(val.shape), self._names), literal(tuple(val.stride()), self._names)
        return f"torch.empty_strided({size}, {stride}, dtype={val.dtype}, device={str(val.device)!r}).zero_()"

    def write_coercion(self, builder: TextBuilder, tangent: TangentText) -> None:
        """Coerce a tangent to what the backward was traced for, and unwrap it."""
        if tangent.wrapped is not None:
            kind = self._names.object(tangent.wrapped.meta.kind, tangent.wrapped.meta.name)
            context = context_text(tangent.wrapped.meta.context, self._names)
            fitted = f"fitting_tangent({tangent.parameter}, {kind}, {context}, {tangent.name!r})"
            builder.add(f"{tangent.parameter} = {fitted}")
            unwrap(builder, tangent.parameter, tangent.wrapped, self._names)
        elif self._checks_plain or id(tangent.nodes[0]) in self._inside_wrappers:
            with builder.block(f"if type({tangent.parameter}) is not torch.Tensor:"):
                fitted = f"fitting_tangent({tangent.parameter}, torch.Tensor, None, {tangent.name!r})"
                builder.add(f"{tangent.parameter} = {fitted}")


def _size_symbols(node: Node) -> set[str]:
    """Return the symbols in the sizes and strides of a tensor."""
    return symbols_in((*node.val.shape, *node.val.stride()))


def _zeros_like_result(index: int) -> str:
    """Return zeros of the sizes that autograd knows for an output."""
    result = f"ctx._input_metadata[{index}]"
    return f"torch.zeros({result}.shape, dtype={result}.dtype, device={result}.device)"


def _is_differentiable_dtype(node: Node) -> bool:
    val = node.val
    return isinstance(val, torch.Tensor) and (val.is_floating_point() or val.is_complex())


def write_stride_coercion(builder: TextBuilder, name: str, val: Any) -> None:
    """Write the copy of a tangent that has other strides or lazy bits than the backward was traced for.

    With symbolic sizes only the order of the dimensions is coerced, since the backward has no names for the
    strides; where the traced tangent has gaps in its memory, the strides stay as they come.
    """
    if not (val.is_floating_point() or val.is_complex()):
        return
    for bit in lazy_bits(val):
        with builder.block(f"if {name}.is_{bit}():"):
            builder.add(f"{name} = {name}.resolve_{bit}()")
    if any(isinstance(size, torch.SymInt) for size in (*val.shape, *val.stride())):
        order = _dense_order(val)
        if order is not None:
            builder.add(f"{name} = {_in_dim_order(name, order, 'contiguous()')}")
        return
    if val.numel() < 2:
        return
    with builder.block(f"if {name}.stride() != {tuple(val.stride())}:"):
        order = _dense_order(val)
        if order is not None:  # for several gradients at once too (`is_grads_batched`)
            copied = _in_dim_order(name, order, "clone(memory_format=torch.contiguous_format)")
            builder.add(f"{name} = {copied}")
            return
        builder.add(
            f"{name} = torch.empty_strided({tuple(val.shape)}, {tuple(val.stride())}, "
            f"dtype={val.dtype}, device={name}.device).copy_({name})"
        )


def _in_dim_order(name: str, order: tuple[int, ...], method: str) -> str:
    """Return an expression that makes a tensor contiguous in the given order of its dimensions."""
    if order == tuple(range(len(order))):
        return f"{name}.{method}"
    back = tuple(order.index(dim) for dim in range(len(order)))
    return f"{name}.permute({order}).{method}.permute({back})"


def _dense_order(val: Any) -> tuple[int, ...] | None:
    """Return the dimension order in which a tensor is contiguous; None if it has gaps in its memory."""
    if val.is_contiguous():
        return tuple(range(val.dim()))
    storage_range = storage_range_of(val)
    if storage_range is None:
        return None
    order = tuple(sorted(range(val.dim()), key=lambda dim: -storage_range.strides[dim]))
    with val.fake_mode, torch.no_grad():
        return order if val.permute(order).is_contiguous() else None
