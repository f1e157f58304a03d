"""The captured stage of a function that computes on wrapper subclasses: the calls of its code on the
wrappers.

Invariant: a wrapper has one name; an inner tensor gets its name where the code first uses it (`x.a`), and a
wrapper that the code creates is created there, since torch records neither. One that is only returned is at
the function's line.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from aotlens.build.captured import CallWriter, CapturedProgram
from aotlens.capture.events import Call
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.subclasses import inner_tensors, is_fake, is_wrapper
from aotlens.ir.names import node_name
from aotlens.ir.origin import NO_ORIGIN, Frames, Origin
from aotlens.ir.program import Node, ProgramOutput
from aotlens.ir.slots import UserOutput
from aotlens.ir.subclasses import UnwrapOperator, WrapOperator
from aotlens.ir.symbols import is_ragged

UNWRAPPED = "an inner tensor that your code takes out of a wrapper"
WRAPPED = "a wrapper that your code creates around these tensors"


def has_wrappers(captured: Captured) -> bool:
    """Return True if the function takes, computes on or returns wrappers."""
    has_wrapped_input = any(captured_input.wrapped is not None for captured_input in captured.inputs)
    return has_wrapped_input or bool(captured.unwrapped_calls) or any(map(is_wrapper, captured.outputs))


def wrapped_program(captured: Captured, values: tuple[Any, ...]) -> tuple[CapturedProgram, dict[int, Origin]]:
    """Return the program over the wrappers, and for each call of a subclass the origin of the user's call.

    `values` holds the results of the calls of the desugared program.
    """
    calls: list[Call] = []
    results: list[Any] = []
    whose: dict[int, Origin] = {}
    position = 0
    for wrapper_call in captured.unwrapped_calls:
        calls += captured.calls[position : wrapper_call.first]
        results += values[position : wrapper_call.first]
        calls.append(wrapper_call.call)
        results.append(wrapper_call.call.result)
        whose |= {
            id(call.origin): wrapper_call.call.origin
            for call in captured.calls[wrapper_call.first : wrapper_call.end]
        }
        position = wrapper_call.end
    calls += captured.calls[position:]
    results += values[position:]
    return WrapperWriter(captured).write(tuple(calls), tuple(results), "captured"), whose


def attributes_of(wrapper: Any) -> Iterator[tuple[str, Any]]:
    """Yield the inner tensors of a wrapper, and the other attributes of its subclass."""
    names = wrapper.__tensor_flatten__()[0]
    yield from ((name, getattr(wrapper, name)) for name in names)
    yield from ((name, value) for name, value in vars(wrapper).items() if name not in names)


class WrapperWriter(CallWriter):
    """Writes down calls on wrappers."""

    def __init__(self, captured: Captured) -> None:
        self._within: dict[int, tuple[Any, str]] = {}
        """By the identity of a tensor inside: the wrapper, and its attribute."""
        self._ragged: dict[int, tuple[Node, int]] = {}
        """By a size that represents several: the wrapper that has it, and its position."""
        super().__init__(captured)

    def _add_tensor(self, captured_input: CapturedInput) -> None:
        node = self._add_input(captured_input.slot, captured_input.argument, captured_input.fake)
        if captured_input.wrapped is not None:
            self._look_inside(captured_input.argument, node)

    def _define_new_sizes(self, node: Node, result: Any, value: Any) -> None:
        if is_wrapper(result):
            self._look_inside(result, node)
        else:
            super()._define_new_sizes(node, result, value)

    def _look_inside(self, wrapper: Any, node: Node | None = None) -> None:
        for dim, size in enumerate(wrapper.shape):
            if node is not None and is_ragged(size):
                self._ragged.setdefault(size.node.nested_int(), (node, dim))
        for name, inner in attributes_of(wrapper):
            if isinstance(inner, torch.Tensor):
                self._within.setdefault(id(inner), (wrapper, name))
                if is_wrapper(inner):
                    self._look_inside(inner)

    def _argument(self, arg: Any) -> Any:
        if is_ragged(arg):
            return self._ragged_size(arg)
        return super()._argument(arg)

    def _ragged_size(self, size: Any) -> Node:
        node, dim = self._ragged[size.node.nested_int()]
        return self._recording.add_node(torch.ops.aten.sym_size.int, (node, dim), {}, size)

    def _node(self, tensor: Any) -> Node:
        """Return a tensor's node: inner tensors are unwrapped, and unknown wrappers created."""
        if id(tensor) in self._node_by_id:
            return self._node_by_id[id(tensor)]
        if id(tensor) in self._within:
            wrapper, name = self._within[id(tensor)]
            outer = self._node(wrapper)
            return self._add_own(f"{outer.name}_{name}", UnwrapOperator(name), (outer,), tensor, UNWRAPPED)
        if not is_wrapper(tensor):
            return super()._node(tensor)
        if self._is_real(tensor):  # such as the example that torch hands to operators on nested tensors
            return self._add_constant(tensor, tensor, tensor)
        return self._created_wrapper(tensor)

    def _is_real(self, wrapper: Any) -> bool:
        """Return True if the wrapper contains the user's or torch's own tensors, which are not recorded."""
        find = self._captured.recorded.find
        mode = self._captured.recorded.fake_mode
        return not is_fake(wrapper, mode) and not any(find(inner) for _, inner in inner_tensors(wrapper))

    def _created_wrapper(self, wrapper: Any) -> Node:
        names, context = wrapper.__tensor_flatten__()
        parts = {name: getattr(wrapper, name) for name in names}
        inner = {name: part for name, part in parts.items() if isinstance(part, torch.Tensor)}
        others = tuple((name, part) for name, part in parts.items() if name not in inner)
        geometry = (self._known_sizes(wrapper.shape), self._known_sizes(wrapper.stride()))
        args = (tuple(self._node(part) for part in inner.values()), *geometry)
        kind = type(wrapper)
        node = self._add_own(
            kind.__name__.lower(), WrapOperator(kind, context, tuple(inner), others), args, wrapper, WRAPPED
        )
        self._look_inside(wrapper, node)
        return node

    def _known_sizes(self, sizes: Any) -> tuple[Any, ...]:
        """Return the sizes without those that represent several, which the inner tensors have."""
        return tuple(None if is_ragged(size) else self._argument(size) for size in sizes)

    def _add_own(self, name: str, op: Any, args: tuple[Any, ...], val: Any, reason: str) -> Node:
        origin = replace(self._recording.origin, reason=reason)
        node = Node(self._recording.name(node_name(name)), op, args, {}, val, origin)
        self._recording.nodes.append(node)
        self._node_by_id[id(val)] = node
        return node

    def _results(self, value: Any, slot: UserOutput) -> Iterator[ProgramOutput]:
        span = self._captured.subject.span
        self._recording.origin = Origin(Frames(known_spans=(span,)) if span is not None else NO_ORIGIN, "")
        yield ProgramOutput(self._argument(value), slot)
