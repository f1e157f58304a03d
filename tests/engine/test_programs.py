"""Every program through the engine: eager is observed once, and compared with each configuration in turn.

A run takes a quarter of the pairs of program and configuration (`--quarter`), so that each program is
compared by every commit, and with every configuration by four, or by sixteen with the costly ones;
`--configuration NAME` takes one alone.
"""

import traceback

import pytest

from tests.engine.checking import EagerRun
from tests.engine.configurations import CONFIGURATIONS, Configuration
from tests.programs import PROGRAMS, Program
from tests.quarters import QUARTERS, ROUNDS, Quarter

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns


def name_of(program: Program) -> str:
    return program.name


@pytest.fixture
def asked(request: pytest.FixtureRequest, quarter: Quarter) -> tuple[Configuration, ...]:
    """The configurations of this run."""
    only = request.config.getoption("--configuration")
    if only:
        unknown = set(only) - {row.name for row in CONFIGURATIONS}
        assert not unknown, f"no such configuration: {', '.join(unknown)}"
        return tuple(row for row in CONFIGURATIONS if row.name in only)
    program = request.getfixturevalue("program")
    return tuple(
        row
        for row in CONFIGURATIONS
        if quarter.takes(program.name, row.turn)
        and (not row.is_costly or quarter.takes_costly(program.name, ROUNDS))
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_program(program: Program, asked: tuple[Configuration, ...]) -> None:
    asked = tuple(row for row in asked if row.covers(program))
    eager = EagerRun(program, grow="dynamic" in program.tags)
    failures, skips = [], []
    for row in asked:
        try:
            row.judge(eager)
        except pytest.skip.Exception as skip:
            skips.append(f"{row.name}: {skip}")
        except pytest.fail.Exception as failure:
            failures.append(f"{row.name}: {failure}")
        except Exception:  # noqa: BLE001 - the other configurations are judged too, and all of it is shown
            failures.append(f"{row.name}:\n{traceback.format_exc()}")
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)
    if len(skips) == len(asked):
        pytest.skip("; ".join(skips) or "no configuration of this run covers it")


def test_each_quarter_compares_each_program_with_eager() -> None:
    """So that a commit which breaks a program is told of it, whichever quarter it runs."""
    turns = {row.turn for row in CONFIGURATIONS if all(map(row.covers, PROGRAMS))}
    assert turns == set(range(QUARTERS))


def test_each_configuration_covers_programs() -> None:
    assert [row.name for row in CONFIGURATIONS if not any(map(row.covers, PROGRAMS))] == []
    assert len({row.name for row in CONFIGURATIONS}) == len(CONFIGURATIONS)
