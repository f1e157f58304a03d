"""Instructions have one name each, and its position, under every supported Python."""

from collections.abc import Callable
from pathlib import Path
from types import FunctionType

import pytest

from aotlens.ir.bytecode import instructions_of, span_of_instruction
from aotlens.model.spans import text_of

SOURCE = """\
def passed(x, seen):
    return print(x, seen)

def filled(x, y, seen):
    seen[x] = y

def kept(x, seen):
    y = x; z = seen
    return y

def both(x, seen):
    seen[x] = seen

def repeated(x, seen):
    return print(x, seen), print(x, seen)

def part(x, seen):
    seen[0:2] = x

def appended(x, seen):
    seen.append(x)
    return [x + row for row in x]
"""


@pytest.fixture
def function(tmp_path: Path) -> Callable[[str], FunctionType]:
    file = tmp_path / "functions.py"
    file.write_text(SOURCE)
    scope: dict[str, FunctionType] = {}
    exec(compile(SOURCE, str(file), "exec"), scope)
    return scope.__getitem__


@pytest.mark.parametrize("name", ["passed", "filled", "kept", "both", "repeated", "part", "appended"])
def test_each_load_of_a_local_has_its_own_name(function: Callable[[str], FunctionType], name: str) -> None:
    code = function(name).__code__

    loads = [part for part in instructions_of(code) if part.opname in ("LOAD_FAST", "LOAD_FAST_BORROW")]

    assert [part.argval for part in loads] == [
        text_of(span) if (span := span_of_instruction(code, part)) is not None else None for part in loads
    ]
