"""Module text that unwraps tensor subclasses before a graph and wraps its outputs.

Invariant: outside the graphs, names refer to what the caller and autograd hold; inside, to plain tensors.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.capture.records import Captured
from aotlens.errors import InternalError
from aotlens.ir.program import Node, ProgramInput, ProgramOutput
from aotlens.ir.render import Names, literal, opaque_text, unflatten_text
from aotlens.ir.slots import (
    DIFFERENTIABLE_OUTPUTS,
    DataSize,
    FlatInput,
    IntermediateBase,
    MutatedInput,
    RngOffset,
    RngState,
    UserOutput,
)
from aotlens.ir.subclasses import Opaque, Wrapped
from aotlens.partition.records import Partitioned
from aotlens.runtime.module_text import TextBuilder

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OuterOutput:
    """One output of the autograd function, as autograd sees it."""

    name: str
    """Its name in the text."""
    inner: tuple[ProgramOutput, ...]
    """The graph outputs that form it: itself, or the inner tensors of a wrapper."""
    wrapped: Wrapped | None = None


def inner_name(outer: str, path: Path) -> str:
    """Return `out_0_a` for `out_0` and `("a",)`."""
    return "_".join((outer, *(part.strip("_") for part in path)))


def output_name(out: ProgramOutput) -> str:
    """Return the text's name for one output of a graph."""
    match out.slot:
        case MutatedInput(index=index, inner=inner):
            return inner_name(f"updated_{index}", inner)
        case IntermediateBase(index=index, inner=inner):
            return inner_name(f"base_{index}", inner)
        case UserOutput(index=index, inner=inner):
            return inner_name(f"out_{index}", inner)
        case DataSize(name=name) | RngOffset(name=name):
            return name
        case slot:
            raise InternalError(f"`{slot}` is not an output of the autograd function")


def outer_outputs(parts: Partitioned) -> list[OuterOutput]:
    """Return the outputs that autograd sees, in order, with the inner tensors of one wrapper combined."""
    meta = parts.joint.meta
    outer: dict[str, OuterOutput] = {}
    for out in parts.forward.outputs_of(*DIFFERENTIABLE_OUTPUTS):
        slot: Any = out.slot
        name = output_name(out)
        if getattr(slot, "inner", ()):
            name = name.removesuffix(inner_name("", slot.inner))
        previous = outer.get(name)
        value: Any = None
        match slot:
            case MutatedInput(index=index):
                value = meta.inputs[index].value
            case IntermediateBase(index=index):
                value = meta.bases[index].value
            case UserOutput(index=index):
                value = meta.outputs[index].value
        inner = (*(previous.inner if previous is not None else ()), out)
        outer[name] = OuterOutput(name, inner, value if isinstance(value, Wrapped) else None)
    return list(outer.values())


@dataclass(frozen=True, slots=True)
class OuterInput:
    """One argument of the autograd function."""

    name: str
    node: Node
    index: int
    """Among the flat inputs; -1 if it is none."""


def outer_inputs(captured: Captured, inputs: Iterable[ProgramInput], names: Names) -> list[OuterInput]:
    """Return the arguments that the graph's inputs come from, each once."""
    outer: dict[str, OuterInput] = {}
    for graph_input in inputs:
        slot: Any = graph_input.slot
        node: Any = graph_input.node
        if isinstance(slot, RngState):
            continue  # the wrapper reads it itself
        if getattr(slot, "inner", ()):
            node = captured.inputs[slot.index].node
        index = slot.index if isinstance(slot, FlatInput) else -1
        outer.setdefault(names.node(node), OuterInput(names.node(node), node, index))
    return list(outer.values())


def write_unwrapping(builder: TextBuilder, captured: Captured, names: Names) -> None:
    """Bind the names of the inner tensors of every wrapper among the arguments."""
    with builder.step("unwrap subclasses", "graphs compute on the inner tensors"):
        for captured_input in captured.inputs:
            if captured_input.wrapped is not None and captured_input.node is not None:
                unwrap(builder, names.node(captured_input.node), captured_input.wrapped, names)


def unwrap(builder: TextBuilder, outer: str, wrapped: Wrapped, names: Names) -> None:
    """Bind the names of the inner tensors of the wrapper that the text calls `outer`."""
    targets = [names.node(node) for node in wrapped.nodes()]
    sources = [".".join((outer, *path)) for path, _ in wrapped.leaves()]
    builder.add(f"{', '.join(targets)} = {', '.join(sources)}")


def write_wrapping(
    builder: TextBuilder, outputs: list[OuterOutput], passed_through: set[int], names: Names
) -> None:
    """Wrap the outputs.

    `passed_through` has the identities of the graph's input nodes: where one is an inner tensor of an output,
    the wrapper receives the caller's tensor, and not what the graph returned for it.
    """
    with builder.step("wrap subclasses", "outputs that are tensor subclasses"):
        for out in outputs:
            if out.wrapped is None:
                continue

            def text(path: Path, node: Node, outer: str = out.name) -> str:
                return names.node(node) if id(node) in passed_through else inner_name(outer, path)

            builder.add(f"{out.name} = {wrap_text(out.wrapped, text, names)}")


def wrap_text(wrapped: Wrapped, text: Callable[[Path, Node], str], names: Names, path: Path = ()) -> str:
    """Return the expression that makes a wrapper; `text` returns the text of an inner value by its path."""
    parts = {}
    for name, part in wrapped.parts:
        if isinstance(part, Wrapped):
            parts[name] = wrap_text(part, text, names, (*path, name))
        elif isinstance(part, Opaque):
            parts[name] = opaque_text(name, part.value, names)
        else:
            parts[name] = text((*path, name), part)
    meta = wrapped.meta
    layout = (_sizes_text(meta.size, names), _sizes_text(meta.stride, names))
    return unflatten_text(meta.kind, meta.context, parts, layout, names)


def _sizes_text(sizes: tuple[Any, ...], names: Names) -> str:
    """Return sizes or strides as text; None for a ragged size: a jagged tensor reads it from its offsets."""
    ragged = (isinstance(size, torch.SymInt) and size.node.is_nested_int() for size in sizes)
    return literal(
        tuple(None if unknown else size for unknown, size in zip(ragged, sizes, strict=True)), names
    )


def symbols_in(values: Iterable[Any]) -> set[str]:
    """Return the names of the symbols in sizes and strides."""
    symbols: set[str] = set()
    for value in values:
        if isinstance(value, torch.SymInt) and not value.node.is_nested_int():
            symbols |= {str(symbol) for symbol in value.node.expr.free_symbols}
    return symbols


def symbols_of(wrapped: Wrapped) -> set[str]:
    """Return the symbols that `wrap_text` writes."""
    symbols = symbols_in((*wrapped.meta.size, *wrapped.meta.stride))
    for _, part in wrapped.parts:
        if isinstance(part, Wrapped):
            symbols |= symbols_of(part)
    return symbols


def size_sources(captured: Captured, names: Names) -> Iterator[tuple[str, str]]:
    """Yield symbols, each with the text that reads it from the graph's arguments."""
    for captured_input in captured.inputs:
        if captured_input.node is None:
            continue
        name = names.node(captured_input.node)
        if isinstance(captured_input.node.val, torch.SymInt):
            yield from _source(captured_input.node.val, name)
        elif captured_input.is_tensor:
            for dim, size in enumerate(captured_input.fake.shape):
                yield from _source(size, f"{name}.size({dim})")
            for node in captured_input.nodes if captured_input.wrapped is not None else ():
                for dim, size in enumerate(node.val.shape):
                    yield from _source(size, f"{names.node(node)}.size({dim})")


def _source(size: Any, text: str) -> Iterator[tuple[str, str]]:
    if isinstance(size, torch.SymInt) and not size.node.is_nested_int() and size.node.expr.is_symbol:
        yield str(size.node.expr), text
