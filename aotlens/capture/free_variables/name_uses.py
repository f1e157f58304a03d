"""How the user's code uses a name, and whether it may read the name's value.

Invariant: a name is unread only if every use of it is a write; code that looks names up dynamically
(`getattr(self, name)`, `vars(self)`) may read every attribute and global.
"""

import dis
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from aotlens.capture.free_variables.members import is_user_class
from aotlens.capture.free_variables.reachable import Binding, ReachableState
from aotlens.ir.bytecode import instructions_of, span_of_instruction
from aotlens.model.report import Span

FILLING = frozenset({"append", "extend", "update", "clear"})
"""Container methods that write and read nothing."""
CHANGING = frozenset(
    {
        *("pop", "popitem", "popleft", "appendleft", "extendleft", "insert", "setdefault"),
        *("remove", "sort", "reverse", "add", "discard"),
    }
)
"""Container methods that write and may return, or depend on, the container's items."""
LOOKUPS = frozenset({"getattr", "hasattr"})
DYNAMIC_LOOKUPS = frozenset({"vars", "__dict__", "globals", "eval", "exec", "attrgetter", "__getattribute__"})
NAMES = ("ATTR", "GLOBAL", "NAME", "DEREF")
STORES = frozenset(f"{does}_{what}" for does in ("STORE", "DELETE") for what in NAMES)
NO_READS = frozenset({"LOAD_CLOSURE", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_CONST"})
"""Load instructions whose name is not an attribute, a global or a closure variable."""
ITEM = frozenset({"BINARY_SUBSCR", "BINARY_SLICE", "BINARY_OP"})
"""Instructions that read an item of a container (a slice has its own from 3.12 on; one for all in 3.14)."""
ITEM_STORES = frozenset({"STORE_SUBSCR", "STORE_SLICE"})
"""Instructions that write an item of a container; from Python 3.12 on, a slice has one of its own."""
NEUTRAL = frozenset({"LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "POP_TOP", "PUSH_NULL", "NOP"})
"""Instructions that share an expression's position without using it, such as the end of a function."""

Start = tuple[int, int]
"""Line and column."""
UNKNOWN = object()
"""A key that is not a literal."""


@dataclass(frozen=True, slots=True)
class NameWrite:
    """One expression that binds a name, or writes to the name's value."""

    span: Span | None
    """None where the code has no positions."""
    key: Any = UNKNOWN
    """The key of the written item."""


@dataclass(frozen=True, slots=True)
class NameUses:
    """All uses of one name."""

    reads: bool
    """Whether the code may read the value."""
    write_kinds: frozenset[str]
    """The methods, or `STORE_SUBSCR`, by which the code writes to the value."""
    writes: tuple[NameWrite, ...]

    @property
    def span(self) -> Span | None:
        """The first write."""
        return next((write.span for write in self.writes if write.span is not None), None)


def name_uses(reachable: ReachableState, binding: Binding) -> NameUses:
    """Return all uses of a binding's name in the reachable code."""
    first, *keys = binding.keys
    codes = (inner for code in reachable.codes for inner in (code, *inner_codes(code)))
    local = binding.kind_text == "the default"
    uses = [_in_code(_Instructions(code), str(first), keys, local) for code in codes]
    return combined_uses(uses, _read_by_packages(reachable, str(first)))


def combined_uses(uses: Sequence[NameUses], reads: bool = False) -> NameUses:
    """Return the union of several uses."""
    ways = frozenset[str]().union(*(use.write_kinds for use in uses))
    writes = (write for use in uses for write in use.writes)
    return NameUses(reads or any(use.reads for use in uses), ways, tuple(dict.fromkeys(writes)))


def inner_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects nested in a function's."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from inner_codes(constant)


def _read_by_packages(reachable: ReachableState, name: str) -> bool:
    """Return True if a package's base class of a user's class mentions the name."""
    kinds = {kind for instance in reachable.instances for kind in instance.kind.__mro__}
    for kind in kinds:
        if is_user_class(kind) or kind.__module__.split(".")[0] in ("torch", "builtins"):
            continue
        codes = (getattr(member, "__code__", None) for member in vars(kind).values())
        if any(name in code.co_names for code in codes if code is not None):
            return True
    return False


class _Instructions:
    """A function's instructions, indexed by the start of the expression that each of them ends."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.all = instructions_of(code)
        self._from: dict[Start, list[tuple[Start, dis.Instruction]]] = {}
        for instruction in self.all:
            begin, end = _range(instruction)
            if begin is not None and end is not None and instruction.opname not in NEUTRAL:
                self._from.setdefault(begin, []).append((end, instruction))

    def consumers(self, instruction: dis.Instruction) -> list[dis.Instruction]:
        """Return the instructions of the smallest longer expression that starts at the same position."""
        begin, end = _range(instruction)
        if begin is None or end is None:
            return []
        longer = [known for known in self._from.get(begin, ()) if known[0] > end]
        nearest = min((known[0] for known in longer), default=None)
        return [other for known, other in longer if known == nearest]

    def instructions_inside(self, instruction: dis.Instruction) -> list[dis.Instruction]:
        """Return the instructions whose expressions lie inside this instruction's."""
        begin, end = _range(instruction)
        ranges = ((_range(other), other) for other in self.all if other is not instruction)
        return [
            other
            for (start, stop), other in ranges
            if None not in (begin, end, start, stop) and begin <= start and stop <= end  # type: ignore[operator]
        ]


def _range(instruction: dis.Instruction) -> tuple[Start | None, Start | None]:
    positions = instruction.positions
    if positions is None or positions.lineno is None or positions.col_offset is None:
        return None, None
    if positions.end_lineno is None or positions.end_col_offset is None:
        return None, None
    return (positions.lineno, positions.col_offset), (positions.end_lineno, positions.end_col_offset)


def _in_code(instructions: _Instructions, name: str, keys: list[Any], local: bool) -> NameUses:
    reads, ways = False, set[str]()
    written: list[NameWrite] = []

    def note(instruction: dis.Instruction, key: Any = UNKNOWN) -> None:
        if instructions.code.co_name != "__init__":  # ran before the call
            written.append(NameWrite(span_of_instruction(instructions.code, instruction), key))

    for instruction in instructions.all:
        is_load = instruction.opname.startswith("LOAD") and (local or instruction.opname not in NO_READS)
        if instruction.argval == name and instruction.opname in STORES and not keys:
            note(instruction)
        elif instruction.argval == name and is_load and instruction.opname != "LOAD_CONST":
            load_ways, by, key = _write_kinds(instructions, instruction, keys)
            reads |= bool(load_ways & READ)
            ways |= load_ways - READ
            if load_ways - READ:
                note(by, key)
        elif instruction.argval == name and instruction.opname == "LOAD_CONST":
            call = _setattr_call(instructions, instruction)
            if call is not None:
                note(call)
            else:
                reads = True
        elif instruction.argval in DYNAMIC_LOOKUPS and is_load:
            reads = True
        elif instruction.argval in LOOKUPS and is_load:
            reads |= _looks_up_dynamically(instructions, instruction)
    return NameUses(reads, frozenset(ways), tuple(written))


READ = frozenset({"read"})


def _write_kinds(
    instructions: _Instructions, load: dis.Instruction, keys: list[Any]
) -> tuple[frozenset[str], dis.Instruction, Any]:
    """Return how the code writes to the loaded container, or to the one under `keys`, and the key.

    Empty if the code uses another key.
    """
    nothing = frozenset[str](), load, UNKNOWN
    takers = instructions.consumers(load)
    for key in keys:
        if not takers or any(taker.opname not in ITEM for taker in takers):
            is_other = (
                takers
                and takers[0].opname in ITEM_STORES
                and _is_other_key(instructions, load, takers[0], key)
            )
            return nothing if is_other else (READ, load, UNKNOWN)
        if _is_other_key(instructions, load, takers[0], key):
            return nothing
        load, takers = takers[0], instructions.consumers(takers[0])
    if takers and all(taker.opname in ITEM_STORES for taker in takers):
        return frozenset({"STORE_SUBSCR"}), takers[0], _written_key(instructions, load, takers[0])
    methods = {taker.argval for taker in takers if taker.opname in ("LOAD_ATTR", "LOAD_METHOD")}
    others = [taker for taker in takers if taker.opname not in ("LOAD_ATTR", "LOAD_METHOD")]
    if others and all(taker.opname == "DELETE_SUBSCR" for taker in others):
        return READ | {"DELETE_SUBSCR"}, others[0], _written_key(instructions, load, others[0])
    if not methods or not methods <= FILLING | CHANGING or others:
        return READ, load, UNKNOWN
    ways = frozenset(methods) if methods <= FILLING else READ | methods
    return ways, next(iter(instructions.consumers(takers[0])), load), UNKNOWN


def _is_other_key(
    instructions: _Instructions, load: dis.Instruction, item: dis.Instruction, key: Any
) -> bool:
    """Return True if an item is accessed under a different literal key."""
    written = _written_key(instructions, load, item)
    return type(written) is type(key) and bool(written != key)


def _written_key(instructions: _Instructions, load: dis.Instruction, item: dis.Instruction) -> Any:
    """Return the literal key under which an item is read or written, or UNKNOWN."""
    inside = [
        instruction
        for instruction in instructions.instructions_inside(item)
        if (_range(instruction)[0] or (0, 0)) >= (_range(load)[1] or (0, 0))
    ]
    written = [
        instruction.argval for instruction in inside if instruction.opname in ("LOAD_CONST", "LOAD_SMALL_INT")
    ]
    return written[0] if len(inside) == len(written) == 1 else UNKNOWN


def _call_of(instructions: _Instructions, load: dis.Instruction) -> dis.Instruction | None:
    """Return the call of the function that the instruction loads."""
    return next((taker for taker in instructions.consumers(load) if taker.opname.startswith("CALL")), None)


def _setattr_call(instructions: _Instructions, text: dis.Instruction) -> dis.Instruction | None:
    """Return the call of `setattr` that gets this literal name."""
    for instruction in instructions.all:
        if instruction.argval == "setattr" and instruction.opname.startswith("LOAD"):
            call = _call_of(instructions, instruction)
            if call is not None and any(inner is text for inner in instructions.instructions_inside(call)):
                return call
    return None


def _looks_up_dynamically(instructions: _Instructions, load: dis.Instruction) -> bool:
    """Return True if a call of `getattr` gets a name that is not a literal."""
    call = _call_of(instructions, load)
    if call is None:
        return True
    parts = [part for part in instructions.instructions_inside(call) if _range(part) != _range(call)]
    return not _has_text(parts) or any(not part.opname.startswith(("LOAD", "PUSH_NULL")) for part in parts)


def _has_text(parts: Iterable[dis.Instruction]) -> bool:
    return any(part.opname == "LOAD_CONST" and isinstance(part.argval, str) for part in parts)
