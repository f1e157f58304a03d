"""Record custom operators that mutate arguments and have no functional variant.

Such a call becomes one functionalised call that copies the mutated arguments.
"""

from typing import Any

from aotlens.capture.graph import Recording
from aotlens.capture.mutations.in_place import WritingCall, record_write
from aotlens.capture.mutations.writability import check_writable, reject_overlap, tensors_of
from aotlens.capture.storage import Storage
from aotlens.ir.program import Node
from aotlens.torch_api.hop import auto_functionalized, can_auto_functionalize
from aotlens.unsupported import unsupported


def record_custom_mutation(recording: Recording, call: WritingCall) -> Any:
    """Record the call through `auto_functionalized`; return what the operator itself would return.

    Raises:
        UnsupportedError: a result aliases an argument, or another argument overlaps a mutated one.
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
    reject_overlap(recording, f"`{call.name}`", named)
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


def _arguments_by_name(call: WritingCall) -> dict[str, Any]:
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


def _results(recording: Recording, call: WritingCall, node: Node, count: int) -> Any:
    """Return the operator's results: new tensors, or for `add_` and `add.out` the mutated arguments."""
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
