"""The rows of plain values that the compilation made constant: arguments, globals, closures, attributes.

Invariant: each row is at an expression of the user's that reads the value; reads in installed packages alone
are not listed.
"""

from collections.abc import Iterator
from types import CodeType

from aotlens.capture.free_variables.mentions import mentions
from aotlens.capture.free_variables.state import Binding
from aotlens.capture.records import Captured
from aotlens.ir.bytecode import span_of_instruction
from aotlens.ir.slots import UserInput
from aotlens.model import report as rows
from aotlens.model.spans import text_of
from aotlens.model.target_records import BUILT_IN

PLAIN = (bool, int, float, complex, str, type(None))

READS = {
    "the global": ("LOAD_GLOBAL", "LOAD_NAME"),
    "the closure variable": ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"),
    "the attribute": ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"),
    "the class attribute": ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"),
    "the argument": ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF"),
}
"""The instructions that read a name of each kind."""

Kind = tuple[str, str]
"""The kind and name of a read."""


def value_guards(captured: Captured) -> Iterator[rows.Guard]:
    """One row per name that the user's code reads, in the order of the source."""
    reachable = captured.reachable
    values: dict[Kind, list[object]] = {}
    for binding in reachable.bindings:
        if isinstance(binding.value, PLAIN) and not _is_unread(binding):
            _note(values, (binding.kind_text, binding.name), binding.value)
    for captured_input in captured.flat_inputs:
        if (
            captured_input.node is None
            and isinstance(captured_input.slot, UserInput)
            and isinstance(captured_input.argument, PLAIN)
        ):
            _note(values, ("the argument", captured_input.slot.name), captured_input.argument)
    if not values:
        return
    start = captured.subject.span
    own = (start.file, start.line) if start is not None else None
    for kind, span in sorted(_reads(reachable.codes, values, own).items(), key=lambda item: _order(item[1])):
        text = text_of(span)
        if text:
            yield rows.Guard(_condition(text, values[kind]), BUILT_IN, span, (rows.Site(span, text),))


def _is_unread(binding: Binding) -> bool:
    return binding.kind_text not in READS or binding.name.startswith("__")


def _note(values: dict[Kind, list[object]], kind: Kind, value: object) -> None:
    known = values.setdefault(kind, [])
    if not any(value is other or (type(value) is type(other) and value == other) for other in known):
        known.append(value)


def _condition(text: str, values: list[object]) -> str:
    """`self.scale == 2.0`; several objects may have the attribute."""
    if len(values) > 1:
        return f"{text} in ({', '.join(map(repr, values))})"
    value = values[0]
    return f"{text} {'is' if value is None or isinstance(value, bool) else '=='} {value!r}"


def _order(span: rows.Span) -> tuple[str, int, int]:
    return span.file, span.line, span.col


def _reads(
    codes: tuple[CodeType, ...], values: dict[Kind, list[object]], own: tuple[str, int] | None
) -> dict[Kind, rows.Span]:
    """Return the first expression that reads each name; that of an argument is in the function at `own`."""
    wanted = {(op, kind[1]): kind for kind in values for op in READS[kind[0]]}
    first_reads: dict[Kind, rows.Span] = {}
    for outer in codes:
        is_own = (outer.co_filename, outer.co_firstlineno) == own
        for code, instruction in mentions((outer,), {name for _, name in values}):
            kind = wanted.get((instruction.opname, instruction.argval))
            if kind is None or kind in first_reads or (kind[0] == "the argument" and not is_own):
                continue
            span = span_of_instruction(code, instruction)
            if span is not None:
                first_reads[kind] = span
    return first_reads
