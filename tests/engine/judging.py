"""What a program's outcome must be: as eager, or unsupported by name where the list says so."""

import re
from collections.abc import Iterator
from string import Formatter

import pytest

from aotlens.errors import AotlensError, UnsupportedError
from aotlens.unsupported import CASES
from tests.engine.checking import Compiler, EagerRun, compared, told
from tests.programs import Program


def judge(program: Program, compiler: Compiler, *, grow: bool = False) -> None:
    """Fail the test unless the program behaves as eager or is unsupported as its row says."""
    judge_beside(EagerRun(program, grow=grow), compiler, grow=grow)


def judge_beside(eager: EagerRun, compiler: Compiler, *, grow: bool = False) -> None:
    """As `judge`, beside eager that other compilers are compared with too."""
    program = eager.program
    outcome = compared(eager, compiler, grow=grow)
    if outcome.refusal is not None:
        _judge_refusal(eager, outcome.refusal)
    differences = [found for found in outcome.differences if found.kind not in program.tolerated]
    if differences:
        pytest.fail(told(program, differences), pytrace=False)


def _judge_refusal(eager: EagerRun, refusal: AotlensError) -> None:
    program = eager.program
    if program.unsupported is not None and not is_for(refusal, program.unsupported):
        wanted = f"{program.name} must be unsupported as {program.unsupported!r}"
        pytest.fail(f"{wanted}, found: {getattr(refusal, 'name', '')} {refusal}", pytrace=False)
    if eager.fails or program.unsupported is not None:
        return
    if program.later is None:
        pytest.fail(f"{program.name} must work, but was unsupported: {refusal}", pytrace=False)
    if not isinstance(refusal, UnsupportedError):
        pytest.fail(f"{program.name} failed with {type(refusal).__name__}: {refusal}", pytrace=False)
    if not str(refusal).strip():
        pytest.fail(f"{program.name} was unsupported without a message", pytrace=False)


def is_for(refusal: AotlensError, reason: str) -> bool:
    """Whether an error is the case that a program names, or has its phrase where it is the user's mistake.

    Where a call failed, only the message is known.
    """
    case = CASES.get(reason)
    if case is None:
        return reason in str(refusal)
    named = getattr(refusal, "name", "")
    if named:
        return bool(named == case.name)
    words = "".join(".*" if name else re.escape(text) for text, name in _parts(case.text))
    return re.search(words, str(refusal), re.DOTALL) is not None


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for plain, name, _, _ in Formatter().parse(text):
        yield plain, ""
        if name is not None:
            yield "", name
