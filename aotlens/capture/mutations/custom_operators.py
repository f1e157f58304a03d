"""Record custom operators that mutate arguments and have no functional variant.

Such a call becomes one functionalised call that copies the mutated arguments, or their common storage where
they overlap.
"""

from typing import Any

from aotlens.capture.as_strided import OTHER_ELEMENTS
from aotlens.capture.graph import Recording
from aotlens.capture.mutations.in_place import Write
from aotlens.capture.mutations.overlapping_arguments import overlapping_written, tensors_of
from aotlens.capture.mutations.writability import check_writable
from aotlens.capture.mutations.writes import record_write
from aotlens.capture.operators import aten
from aotlens.capture.storage import Storage
from aotlens.ir.program import Node
from aotlens.torch_api.hop import auto_functionalized, auto_functionalized_v2, can_auto_functionalize
from aotlens.unsupported import unsupported

Geometry = tuple[list[Any], list[Any], Any]
"""Sizes, strides and storage offset on a base."""


def record_on_copied_bases(
    recording: Recording, call: Write, by_name: dict[str, Any], shared: list[Any]
) -> tuple[Node, int]:
    """Record the call and its writes; return the node and the number of the operator's own results.

    Raises:
        UnsupportedError: an argument in `shared`, which overlap, is not a strided view of the storage.
    """
    bases = _CopiedBases(recording, shared)
    written = [
        argument
        for argument in call.func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    call_kwargs = {
        name: value for name, value in by_name.items() if all(name != mutated.name for mutated in written)
    }
    for argument in written:
        call_kwargs |= bases.arguments_for(argument.name, by_name[argument.name])
    values = [base.val for base in bases.nodes]
    result = auto_functionalized_v2(call.func, **call_kwargs, _all_bases=values)
    arguments = {name: recording.argument(value) for name, value in call_kwargs.items()}
    node = recording.add_node(
        auto_functionalized_v2, (call.func,), arguments | {"_all_bases": bases.nodes}, result
    )
    first = len(result) - len(values)
    after = [recording.item(node, first + index) for index in range(len(values))]
    for tensor, index, geometry in bases.writes:
        record_write(
            recording,
            tensor,
            after[index]
            if geometry is None
            else recording.emit(aten.as_strided.default, after[index], *geometry),
        )
    return node, first


class _CopiedBases:
    """The bases that `auto_functionalized_v2` copies, and each mutated tensor's geometry on them."""

    def __init__(self, recording: Recording, shared: list[Any]) -> None:
        self._recording, self._shared = recording, shared
        self.nodes: list[Node] = []
        self.writes: list[tuple[Any, int, Geometry | None]] = []
        """Each mutated tensor, the index of its base, and its geometry there; None for the whole base."""

    def arguments_for(self, name: str, value: Any) -> dict[str, Any]:
        """Return the keyword arguments of `auto_functionalized_v2` for one mutated argument."""
        if not isinstance(value, (list, tuple)):
            return self._tensor_arguments(f"_{name}", value)
        keywords: dict[str, Any] = {f"_{name}_length": len(value)}
        for index, tensor in enumerate(value):
            keywords |= self._tensor_arguments(f"_{name}_{index}", tensor)
        return keywords

    def _tensor_arguments(self, name: str, tensor: Any) -> dict[str, Any]:
        if tensor is None:
            return {f"{name}_base_index": None}
        if not any(tensor is other for other in self._shared):
            return {f"{name}_base_index": self._add_write(tensor, self._recording.node_of(tensor), None)}
        size, stride, start = geometry = self._geometry(tensor)
        index = self._add_write(tensor, self._recording.tracked(tensor).storage.base, geometry)
        keywords = {"base_index": index, "size": size, "stride": stride, "storage_offset": start}
        return {f"{name}_{key}": value for key, value in keywords.items()}

    def _add_write(self, tensor: Any, base: Node, geometry: Geometry | None) -> int:
        if not any(base is node for node in self.nodes):
            self.nodes.append(base)
        index = next(position for position, node in enumerate(self.nodes) if node is base)
        self.writes.append((tensor, index, geometry))
        return index

    def _geometry(self, tensor: Any) -> Geometry:
        known = self._recording.tracked(tensor)
        base, like = known.storage.base.val, known.storage.base_tensor
        if base.stride() != like.stride() or any(step.op in OTHER_ELEMENTS for step in known.chain):
            raise unsupported("custom-operator-overlap", self._recording.span)
        start = tensor.storage_offset() - like.storage_offset() + base.storage_offset()
        return list(tensor.shape), list(tensor.stride()), start


def record_custom_mutation(recording: Recording, call: Write) -> Any:
    """Record the call through `auto_functionalized`; return what the operator itself would return.

    Raises:
        UnsupportedError: a result aliases an argument, or a read argument overlaps a mutated one.
    """
    if not can_auto_functionalize(call.func):
        reason = "its result aliases an argument" if _returns_alias(call.func) else "no functional variant"
        raise unsupported("operator-mutation", recording.span, operator=call.name, reason=reason)
    by_name = _arguments_by_name(call)
    written = _mutated_names(call.func)
    for name in written:
        for target in tensors_of(by_name[name]):
            check_writable(recording, target, call.func, (call.args, call.kwargs))
    named = [
        (name, tensor, name in written) for name, value in by_name.items() for tensor in tensors_of(value)
    ]
    if shared := overlapping_written(recording, f"`{call.name}`", named):
        return _results(recording, call, *record_on_copied_bases(recording, call, by_name, shared))
    arguments = {name: recording.argument(value) for name, value in by_name.items()}
    result = auto_functionalized(call.func, **by_name)
    node = recording.add_node(auto_functionalized, (call.func,), arguments, result)
    first = len(result) - len(written)
    for index, name in enumerate(written, first):
        _write(recording, by_name[name], recording.item(node, index) if by_name[name] is not None else None)
    return _results(recording, call, node, first)


def _mutated_names(func: Any) -> list[str]:
    """Return the names of the mutated arguments, in the schema's order."""
    arguments = func._schema.arguments
    return [arg.name for arg in arguments if arg.alias_info is not None and arg.alias_info.is_write]


def _returns_alias(func: Any) -> bool:
    return any(result.alias_info is not None for result in func._schema.returns)


def _arguments_by_name(call: Write) -> dict[str, Any]:
    """Return all arguments by name; an omitted mutated argument is None."""
    schema = call.func._schema.arguments
    arguments = {
        argument.name: value for argument, value in zip(schema, call.args, strict=False)
    } | call.kwargs
    defaults = {name: None for name in _mutated_names(call.func) if name not in arguments}
    return arguments | defaults


def _write(recording: Recording, target: Any, value: Any) -> None:
    if isinstance(target, (list, tuple)):
        for index, single in enumerate(target):
            record_write(recording, single, recording.item(value, index))
    elif target is not None:
        record_write(recording, target, value)


def _results(recording: Recording, call: Write, node: Node, count: int) -> Any:
    """Return the operator's results: new tensors, or the mutated arguments."""
    if not call.func._schema.returns:
        return None
    if call.operator.returned:
        return call.operator.returned_value(call.targets)
    results = []
    for index in range(count):
        item = recording.item(node, index)
        recording.track(item.val, Storage(item, item.val))
        results.append(item.val)
    return results[0] if len(results) == 1 else tuple(results)
