"""Where the user's code mentions a name, and whether it may read what the name holds.

Invariant: a name counts as unread only where each of its mentions is seen to write; code that looks names up
by text that is not written out (`getattr(self, name)`, `vars(self)`) may read every attribute and global.
"""

import dis
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from aotlens.capture.reach import Place, Reach, is_own_class
from aotlens.ir.origin import span_of
from aotlens.report.records import Span

FILLING = frozenset({"append", "extend", "update", "clear"})
"""Methods of a container that write to it and read nothing."""
BY_TEXT = frozenset({"getattr", "hasattr"})
BY_ANY_TEXT = frozenset({"vars", "__dict__", "globals", "eval", "exec", "attrgetter", "__getattribute__"})
STORES = frozenset({"STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF"})
NO_READS = frozenset({"LOAD_CLOSURE", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_CONST"})
"""Instructions that load something by a name which is no attribute, global or closure variable's value."""
ITEM = frozenset({"BINARY_SUBSCR", "BINARY_OP"})
"""What takes an item out of a container (Python 3.14 has one operator for all)."""
BESIDE = frozenset({"LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "POP_TOP", "PUSH_NULL", "NOP"})
"""What may stand at an expression and does nothing with its parts: the end of a function, for one."""

Start = tuple[int, int]
"""Line and column."""


@dataclass(frozen=True, slots=True)
class Mentions:
    """What the code does with one name."""

    reads: bool
    """Whether it may read the value."""
    ways: frozenset[str]
    """The methods, or `STORE_SUBSCR`, by which it writes to what the name holds."""
    span: Span | None
    """The first write."""


def mentions(around: Reach, place: Place) -> Mentions:
    """What all code that can run does with a place's name."""
    first, *keys = place.keys
    reads, ways, span = _read_by_packages(around, str(first)), set[str](), None
    for code in around.codes:
        for one in (code, *inner_codes(code)):
            found = _in_code(_Instructions(one), str(first), keys, place.what == "the default")
            reads, ways, span = reads or found.reads, ways | found.ways, span or found.span
    return Mentions(reads, frozenset(ways), span)


def inner_codes(code: CodeType) -> Iterator[CodeType]:
    """The functions that stand inside of one."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from inner_codes(constant)


def _read_by_packages(around: Reach, name: str) -> bool:
    """Whether a class of a package, from which one of the user's derives, knows the name."""
    kinds = {kind for instance in around.instances for kind in instance.kind.__mro__}
    for kind in kinds:
        if is_own_class(kind) or kind.__module__.split(".")[0] in ("torch", "builtins"):
            continue
        codes = (getattr(member, "__code__", None) for member in vars(kind).values())
        if any(name in code.co_names for code in codes if code is not None):
            return True
    return False


class _Instructions:
    """One function's instructions, by where the expressions that they end begin."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.all = list(dis.get_instructions(code))
        self._from: dict[Start, list[tuple[Start, dis.Instruction]]] = {}
        for one in self.all:
            begin, end = _range(one)
            if begin is not None and end is not None and one.opname not in BESIDE:
                self._from.setdefault(begin, []).append((end, one))

    def takers(self, one: dis.Instruction) -> list[dis.Instruction]:
        """The instructions of the smallest expression that begins with this one's and goes on behind it."""
        begin, end = _range(one)
        if begin is None or end is None:
            return []
        longer = [known for known in self._from.get(begin, ()) if known[0] > end]
        nearest = min((known[0] for known in longer), default=None)
        return [other for known, other in longer if known == nearest]

    def within(self, one: dis.Instruction) -> list[dis.Instruction]:
        """The instructions whose expressions lie inside this one's."""
        begin, end = _range(one)
        ranges = ((_range(other), other) for other in self.all if other is not one)
        return [
            other
            for (start, stop), other in ranges
            if None not in (begin, end, start, stop) and begin <= start and stop <= end  # type: ignore[operator]
        ]


def _range(one: dis.Instruction) -> tuple[Start | None, Start | None]:
    at = one.positions
    if at is None or at.lineno is None or at.col_offset is None:
        return None, None
    if at.end_lineno is None or at.end_col_offset is None:
        return None, None
    return (at.lineno, at.col_offset), (at.end_lineno, at.end_col_offset)


def _in_code(known: _Instructions, name: str, keys: list[Any], local: bool) -> Mentions:
    reads, ways = False, set[str]()
    written: dis.Instruction | None = None
    for one in known.all:
        is_load = one.opname.startswith("LOAD") and (local or one.opname not in NO_READS)
        if one.argval == name and one.opname in STORES and not keys:
            written = written or one
        elif one.argval == name and is_load and one.opname != "LOAD_CONST":
            found = _ways(known, one, keys)
            reads |= found == READ
            ways |= found - READ
            written = written or (one if found - READ else None)
        elif one.argval == name and one.opname == "LOAD_CONST":
            if _is_set_by_text(known, one):
                written = written or one
            else:
                reads = True
        elif one.argval in BY_ANY_TEXT and is_load:
            reads = True
        elif one.argval in BY_TEXT and is_load:
            reads |= _looks_up_any(known, one)
    span = span_of(known.code, written.offset) if written is not None else None
    return Mentions(reads, frozenset(ways), span)


READ = frozenset({"read"})


def _ways(known: _Instructions, load: dis.Instruction, keys: list[Any]) -> frozenset[str]:
    """How the loaded container, or the one under `keys` in it, is written to; none where another is meant."""
    takers = known.takers(load)
    for key in keys:
        if not takers or any(one.opname not in ITEM for one in takers):
            is_other = (
                takers and takers[0].opname == "STORE_SUBSCR" and _is_other_key(known, load, takers[0], key)
            )
            return frozenset() if is_other else READ
        if _is_other_key(known, load, takers[0], key):
            return frozenset()
        load, takers = takers[0], known.takers(takers[0])
    if takers and all(one.opname == "STORE_SUBSCR" for one in takers):
        return frozenset({"STORE_SUBSCR"})
    methods = {one.argval for one in takers if one.opname in ("LOAD_ATTR", "LOAD_METHOD")}
    others = [one for one in takers if one.opname not in ("LOAD_ATTR", "LOAD_METHOD")]
    return frozenset(methods) if methods and methods <= FILLING and not others else READ


def _is_other_key(known: _Instructions, load: dis.Instruction, item: dis.Instruction, key: Any) -> bool:
    """Whether an item is taken under a key that is written out and is another one."""
    inside = [one for one in known.within(item) if (_range(one)[0] or (0, 0)) >= (_range(load)[1] or (0, 0))]
    written = [one.argval for one in inside if one.opname in ("LOAD_CONST", "LOAD_SMALL_INT")]
    return len(inside) == len(written) == 1 and type(written[0]) is type(key) and bool(written[0] != key)


def _call_from(known: _Instructions, load: dis.Instruction) -> dis.Instruction | None:
    """The call of the function that the instruction loads."""
    return next((one for one in known.takers(load) if one.opname.startswith("CALL")), None)


def _is_set_by_text(known: _Instructions, text: dis.Instruction) -> bool:
    """Whether a name is written out as an argument of `setattr`, and nowhere else."""
    for one in known.all:
        if one.argval == "setattr" and one.opname.startswith("LOAD"):
            call = _call_from(known, one)
            if call is not None and any(inner is text for inner in known.within(call)):
                return True
    return False


def _looks_up_any(known: _Instructions, load: dis.Instruction) -> bool:
    """Whether a call of `getattr` gets a name that is not written out."""
    call = _call_from(known, load)
    if call is None:
        return True
    parts = [one for one in known.within(call) if _range(one) != _range(call)]
    return not _has_text(parts) or any(not one.opname.startswith(("LOAD", "PUSH_NULL")) for one in parts)


def _has_text(parts: Iterable[dis.Instruction]) -> bool:
    return any(one.opname == "LOAD_CONST" and isinstance(one.argval, str) for one in parts)
