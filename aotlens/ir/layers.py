"""Which layer of the user's model a node belongs to (`blocks.3`), from the parameters that are read near it.

Consecutive nodes without a call or a return of the user's code between them form a stretch; it belongs to the
layer whose parameters it reads.  A stretch that reads none belongs with the next one if it opens a call or
starts another iteration of a loop, else with the previous one.  A stretch that reads parameters of several
layers belongs to none of them, except for the expressions that enclose a layer's own call.  A constant that a
pass made may be anywhere in the program; it belongs to the layer that reads it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aotlens.ir.origin import Origin
from aotlens.ir.program import Node, Program

_NUMBERED = re.compile(r"^(?:[^.]+\.)*?[^.]*\d+(?=\.)")
"""The first part of a qualified name that ends in a layer's number: `blocks.3` of `blocks.3.mlp.0.weight`."""

Position = tuple[Any, int]
"""The position of a user's frame: its code or its file, and the instruction or line."""


@dataclass(slots=True)
class _Stretch:
    opens: bool
    """Whether it starts a call or another iteration of a loop."""
    nodes: list[Node] = field(default_factory=list)
    layers: list[str | None] = field(default_factory=list)
    """For each node the layer whose parameter it reads; empty for a parameter of no layer, else None."""

    @property
    def is_around_layers(self) -> bool:
        return len(set(filter(None, self.layers))) > 1

    def encloses(self, node: Node, layer: str) -> bool:
        """Return True if the node's expression contains one that reads a parameter of the layer."""
        read = zip(self.nodes, self.layers, strict=True)
        calls = (other.origin.location.innermost for other, own in read if own == layer)
        span = node.origin.location.innermost
        return span is not None and any(call is not None and span.holds(call) for call in calls)


class Layers:
    """The layer of each node of a joint program; None outside layers."""

    def __init__(self, program: Program) -> None:
        self._by_origin: dict[int, str] = {}
        self._by_input = _inputs(program)
        before = ""
        stretches = list(_stretches(program, self._by_input))
        for stretch, following in zip(stretches, _next_layers(stretches), strict=True):
            current = _first(stretch)
            if current is None:
                current = following if stretch.opens and following is not None else before
            around = stretch.is_around_layers
            for node, layer in zip(stretch.nodes, stretch.layers, strict=True):
                current = current if layer is None else layer
                is_own = layer is not None or not around or stretch.encloses(node, current)
                self._by_origin[id(node.origin)] = current if is_own else ""
            before = current
        self._place_constants(program)

    def _place_constants(self, program: Program) -> None:
        """Assign each constant of a pass to the layer of its first reader."""
        for reader in program.nodes:
            for source in reader.inputs():
                layer = self.layer_of(reader)
                if layer is not None and _is_made_constant(source):
                    self._by_origin.setdefault(id(source.origin), layer)

    def layer_of(self, node: Node) -> str | None:
        """Return the layer of a forward node, or of the forward operator that it differentiates."""
        origin: Origin | None = node.origin
        if origin is not None and origin.backward:
            origin = origin.differentiates
        return self._by_origin.get(id(origin)) or None

    def layer_of_input(self, node: Node) -> str | None:
        """Return the layer of a parameter or buffer; of a saved value, the layer of what computed it."""
        return self._by_input.get(id(node)) or self.layer_of(node)


def layer_name(fqn: str) -> str:
    """Return `blocks.3` of `blocks.3.mlp.0.weight`; an empty string if no part is a number."""
    match = _NUMBERED.match(fqn)
    return match.group() if match else ""


def _first(stretch: _Stretch) -> str | None:
    return next((layer for layer in stretch.layers if layer is not None), None)


def _next_layers(stretches: list[_Stretch]) -> list[str | None]:
    """Return for each stretch the next layer, starting with its own; None if none follows."""
    next_layers: list[str | None] = []
    following: str | None = None
    for stretch in reversed(stretches):
        first = _first(stretch)
        following = following if first is None else first
        next_layers.append(following)
    return next_layers[::-1]


def _inputs(program: Program) -> dict[int, str]:
    """Return each parameter's and buffer's layer by the identity of its node; empty for no layer."""
    return {
        id(program_input.node): layer_name(fqn)
        for program_input in program.inputs
        if (fqn := _fqn(program_input.slot))
    }


def _stretches(program: Program, read: dict[int, str]) -> Iterator[_Stretch]:
    stretch, before = _Stretch(True), tuple[Position, ...]()
    for node in program.nodes:
        if node.op is None or node.origin.backward or _is_made_constant(node):
            continue
        stack = _stack(node)
        if stack and (changed := _change(before, stack)) is not None:
            yield stretch
            stretch = _Stretch(changed)
        before = stack or before
        stretch.nodes.append(node)
        layers = [read[id(source)] for source in node.inputs() if id(source) in read]
        stretch.layers.append(layers[-1] if layers else None)
    yield stretch


def _is_made_constant(node: Node) -> bool:
    """Return True if a pass made the node from no inputs, in place of the user's operator."""
    return node.op is not None and bool(node.origin.reason) and not any(node.inputs())


def _fqn(slot: Any) -> str:
    return getattr(slot, "fqn", "")


def _stack(node: Node) -> tuple[Position, ...]:
    """Return the user's frames, outermost first."""
    location = node.origin.location
    if location.frames:
        return tuple(reversed(location.frames))
    return tuple((span.file, span.line) for span in reversed(location.known_spans))


def _change(before: tuple[Position, ...], stack: tuple[Position, ...]) -> bool | None:
    """Return True if a call or a loop iteration starts here, False if one only ends, None if neither does."""
    depth = next(
        (index for index, pair in enumerate(zip(before, stack, strict=False)) if pair[0] != pair[1]), None
    )
    if depth is None:
        return None if len(before) == len(stack) else len(stack) > len(before)
    is_next_iteration = before[depth][0] == stack[depth][0] and stack[depth][1] < before[depth][1]
    if is_next_iteration or len(stack) > depth + 1:
        return True
    return False if len(before) > depth + 1 else None
