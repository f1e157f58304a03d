"""Custom operators that write to arguments which overlap: recorded as one that copies their storage first.

Invariant: written arguments with elements in common are views of one copy, so that the operator sees in one
what it writes to the other, as in eager; every other written argument is copied by itself.
"""

from typing import Any

from aotlens.capture.mutations import Write
from aotlens.capture.operators import aten
from aotlens.capture.strided import OTHER_ELEMENTS
from aotlens.capture.tape import Tape
from aotlens.errors import UnsupportedError
from aotlens.ir.program import Node
from aotlens.torch_api.hop import auto_functionalized_v2

Place = tuple[list[Any], list[Any], Any]
"""Sizes, strides and the first element, on a base."""


def record_on_bases(tape: Tape, call: Write, given: dict[str, Any], shared: list[Any]) -> tuple[Node, int]:
    """Record the call, and note its writes; the node, and how many results of the operator's own it gives.

    Raises:
        UnsupportedError: one of the arguments `shared`, which overlap, is no view of the storage by strides.
    """
    bases = _Bases(tape, shared)
    written = [
        argument
        for argument in call.func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    told = {name: value for name, value in given.items() if all(name != one.name for one in written)}
    for argument in written:
        told |= bases.told(argument.name, given[argument.name])
    values = [base.val for base in bases.nodes]
    result = auto_functionalized_v2(call.func, **told, _all_bases=values)
    arguments = {name: tape.argument(value) for name, value in told.items()}
    node = tape.add_node(
        auto_functionalized_v2, (call.func,), arguments | {"_all_bases": bases.nodes}, result
    )
    first = len(result) - len(values)
    after = [tape.item(node, first + at) for at in range(len(values))]
    for tensor, at, place in bases.seen:
        tape.write(
            tensor, after[at] if place is None else tape.emit(aten.as_strided.default, after[at], *place)
        )
    return node, first


class _Bases:
    """What the operator gets copies of, and where each written tensor lies on them."""

    def __init__(self, tape: Tape, shared: list[Any]) -> None:
        self._tape, self._shared = tape, shared
        self.nodes: list[Node] = []
        self.seen: list[tuple[Any, int, Place | None]] = []
        """Each written tensor, its base by number, and its place there; None for the whole."""

    def told(self, name: str, value: Any) -> dict[str, Any]:
        """What `auto_functionalized_v2` is told of one written argument."""
        if not isinstance(value, (list, tuple)):
            return self._told(f"_{name}", value)
        found: dict[str, Any] = {f"_{name}_length": len(value)}
        for at, one in enumerate(value):
            found |= self._told(f"_{name}_{at}", one)
        return found

    def _told(self, name: str, tensor: Any) -> dict[str, Any]:
        if tensor is None:
            return {f"{name}_base_index": None}
        if not any(tensor is one for one in self._shared):
            return {f"{name}_base_index": self._note(tensor, self._tape.node_of(tensor), None)}
        size, stride, start = place = self._place(tensor)
        index = self._note(tensor, self._tape.tracked(tensor).storage.base, place)
        told = {"base_index": index, "size": size, "stride": stride, "storage_offset": start}
        return {f"{name}_{key}": value for key, value in told.items()}

    def _note(self, tensor: Any, base: Node, place: Place | None) -> int:
        if not any(base is node for node in self.nodes):
            self.nodes.append(base)
        index = next(at for at, node in enumerate(self.nodes) if node is base)
        self.seen.append((tensor, index, place))
        return index

    def _place(self, tensor: Any) -> Place:
        known = self._tape.tracked(tensor)
        base, like = known.storage.base.val, known.storage.base_tensor
        if base.stride() != like.stride() or any(step.op in OTHER_ELEMENTS for step in known.chain):
            raise UnsupportedError(
                "a custom operator that writes to tensors which overlap, one of another type or layout",
                self._tape.span,
                "clone one of them before the call",
            )
        start = tensor.storage_offset() - like.storage_offset() + base.storage_offset()
        return list(tensor.shape), list(tensor.stride()), start
