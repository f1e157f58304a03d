"""What a program's outcome must be: as eager, or refused by name where the list says so."""

import pytest

from aotlens.errors import AotlensError, UnsupportedError
from aotlens.verify.first_call import observe_alone
from tests.engine.checking import Compiler, check, prepared, told
from tests.programs import Program


def judge(program: Program, compiler: Compiler, *, grow: bool = False) -> None:
    """Fails the test unless the program behaves as eager or is refused as its row says."""
    outcome = check(program, compiler, grow=grow)
    if outcome.refusal is not None:
        _judge_refusal(program, outcome.refusal)
    differences = [found for found in outcome.differences if found.kind not in program.tolerated]
    if differences:
        pytest.fail(told(program, differences), pytrace=False)


def _judge_refusal(program: Program, refusal: AotlensError) -> None:
    with program.context():
        eager = observe_alone(prepared(program)[0])
        fails_in_eager = eager.failure is not None or eager.backward_failure is not None
    if program.refused is not None and program.refused not in str(refusal):
        wanted = f"{program.name} must be refused for {program.refused!r}"
        pytest.fail(f"{wanted}, found: {refusal}", pytrace=False)
    if fails_in_eager or program.refused is not None:
        return
    if program.later is None:
        pytest.fail(f"{program.name} must work, but was refused: {refusal}", pytrace=False)
    if not isinstance(refusal, UnsupportedError):
        pytest.fail(f"{program.name} failed with {type(refusal).__name__}: {refusal}", pytrace=False)
    if not str(refusal).strip():
        pytest.fail(f"{program.name} was refused without a message", pytrace=False)
