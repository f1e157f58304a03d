"""The instructions of a function, one for each name that it reads or stores.

Invariant: each instruction has one name and that name's own position. From Python 3.13 on, one instruction
may load or store two local variables and has the position of the first; here it is two instructions.
"""

import ast
import dis
import linecache
from functools import lru_cache
from types import CodeType

from aotlens.model.source import Span

Columns = tuple[int, int]
"""The first column of a name, and the one after its last, in UTF-8 bytes."""


def instructions_of(code: CodeType) -> list[dis.Instruction]:
    """Return the code's instructions; `LOAD_FAST_LOAD_FAST` of two names is two `LOAD_FAST`."""
    instructions: list[dis.Instruction] = []
    seconds: list[int] = []
    for instruction in dis.get_instructions(code):
        if not isinstance(instruction.argval, tuple) or "_FAST_" not in instruction.opname:
            instructions.append(instruction)
            continue
        first, second = _opnames(instruction.opname)
        instructions.append(_with_name(instruction, first, instruction.argval[0]))
        seconds.append(len(instructions))
        instructions.append(_with_name(instruction, second, instruction.argval[1]))
    _locate(code.co_filename, instructions, seconds)
    return instructions


def span_of_instruction(code: CodeType, instruction: dis.Instruction) -> Span | None:
    """Return the source range of an instruction; None if it has no position."""
    positions = instruction.positions
    if positions is None or positions.lineno is None:
        return None
    line, col = positions.lineno, positions.col_offset or 0
    return Span(code.co_filename, line, col, positions.end_lineno or line, positions.end_col_offset or col)


def _opnames(opname: str) -> tuple[str, str]:
    """`STORE_FAST_LOAD_FAST` -> `STORE_FAST`, `LOAD_FAST`."""
    parts = opname.split("_")
    middle = next(index for index in range(1, len(parts)) if parts[index] in ("LOAD", "STORE"))
    return "_".join(parts[:middle]), "_".join(parts[middle:])


def _with_name(instruction: dis.Instruction, opname: str, name: str) -> dis.Instruction:
    return instruction._replace(opname=opname, opcode=dis.opmap[opname], argval=name, argrepr=name)


def _locate(file: str, instructions: list[dis.Instruction], seconds: list[int]) -> None:
    """Set the positions of the second names: the occurrences of the name on that line that no other load has.

    Several on one line are distinguished by order alone, and lose their position where the numbers differ.
    """
    grouped: dict[tuple[int | None, str], list[int]] = {}
    for index in seconds:
        positions = instructions[index].positions
        grouped.setdefault((positions and positions.lineno, instructions[index].argval), []).append(index)
    for (line, name), indices in grouped.items():
        own = set(indices)
        known = {
            (other.positions.col_offset, other.positions.end_col_offset)
            for index, other in enumerate(instructions)
            if index not in own
            and other.argval == name
            and other.positions
            and other.positions.lineno == line
        }
        columns = [pair for pair in _columns(file).get((line or 0, name), ()) if pair not in known]
        is_certain = len(columns) == len(indices)
        for position, index in enumerate(indices):
            start, end = columns[position] if is_certain else (None, None)
            positions = dis.Positions(line, line, start, end)
            instructions[index] = instructions[index]._replace(positions=positions)


@lru_cache(maxsize=16)
def _columns(file: str) -> dict[tuple[int, str], list[Columns]]:
    """Return where each name is in a file, by line and name; empty for a file that cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # a notebook cell with magic, or a file that has changed
        return {}
    columns: dict[tuple[int, str], list[Columns]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            columns.setdefault((node.lineno, node.id), []).append((node.col_offset, node.end_col_offset or 0))
    return {key: sorted(pairs) for key, pairs in columns.items()}
