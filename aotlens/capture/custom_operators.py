"""Custom operators that write to arguments and have no functional variant: recorded as one that copies first.

Invariant: the recorded call gives the operator's results and then the new value of each written argument;
the arguments keep their values.
"""

from typing import Any

from aotlens.capture.custom_bases import record_on_bases
from aotlens.capture.mutations import Write
from aotlens.capture.shared_arguments import overlapping, tensors_of
from aotlens.capture.storage import Storage
from aotlens.capture.tape import Tape
from aotlens.capture.writable import check_writable
from aotlens.errors import UnsupportedError
from aotlens.ir.program import Node
from aotlens.torch_api.hop import auto_functionalized, can_auto_functionalize


def record_custom_mutation(tape: Tape, call: Write) -> Any:
    """Record the call through `auto_functionalized`; give what the operator itself would return.

    Raises:
        UnsupportedError: a result that aliases an argument, or a read argument that overlaps a written one.
    """
    if not can_auto_functionalize(call.func):
        reason = "its result aliases an argument" if _returns_alias(call.func) else "no functional variant"
        raise UnsupportedError(
            f"mutation by `{call.name}`: {reason}", tape.span, "return a new tensor from the operator"
        )
    given = _by_name(call)
    written = _written(call.func)
    for name in written:
        for target in tensors_of(given[name]):
            check_writable(tape, target, call.func, (call.args, call.kwargs))
    named = [(name, one, name in written) for name, value in given.items() for one in tensors_of(value)]
    if shared := overlapping(tape, f"`{call.name}`", named):
        return _results(tape, call, *record_on_bases(tape, call, given, shared))
    arguments = {name: tape.argument(value) for name, value in given.items()}
    result = auto_functionalized(call.func, **given)
    node = tape.add_node(auto_functionalized, (call.func,), arguments, result)
    first = len(result) - len(written)
    for at, name in enumerate(written, first):
        _write(tape, given[name], tape.item(node, at) if given[name] is not None else None)
    return _results(tape, call, node, first)


def _written(func: Any) -> list[str]:
    """Names of the written arguments in the schema's order."""
    arguments = func._schema.arguments
    return [arg.name for arg in arguments if arg.alias_info is not None and arg.alias_info.is_write]


def _returns_alias(func: Any) -> bool:
    return any(result.alias_info is not None for result in func._schema.returns)


def _by_name(call: Write) -> dict[str, Any]:
    """All arguments by name; a written one that was left out stands there with its default."""
    schema = call.func._schema.arguments
    given = {argument.name: value for argument, value in zip(schema, call.args, strict=False)} | call.kwargs
    left_out = {name: None for name in _written(call.func) if name not in given}
    return given | left_out


def _write(tape: Tape, target: Any, value: Any) -> None:
    if isinstance(target, (list, tuple)):
        for index, single in enumerate(target):
            tape.write(single, tape.item(value, index))
    elif target is not None:
        tape.write(target, value)


def _results(tape: Tape, call: Write, node: Node, count: int) -> Any:
    """What the operator returns: new tensors, or the written arguments themselves."""
    if not call.func._schema.returns:
        return None
    if call.operator.returned:
        return call.operator.given_back(call.targets)
    found = []
    for index in range(count):
        item = tape.item(node, index)
        tape.track(item.val, Storage(item, item.val))
        found.append(item.val)
    return found[0] if len(found) == 1 else tuple(found)
