"""The programs on which released compilers were wrong, under the policy of their case.

With the usual policy `test_programs.py` runs them with all others.
"""

import pytest

from aotlens.options import CompileOptions
from tests.engine.configurations import direct
from tests.engine.judging import judge
from tests.programs import PROGRAMS
from tests.programs.corpus import CORPUS

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns

BY_NAME = {program.name: program for program in PROGRAMS}


def test_every_program_of_the_corpus_exists_once() -> None:
    names = [name for known in CORPUS for name in known.programs]
    assert len(names) == len(set(names))
    assert set(names) <= set(BY_NAME)
    assert {name for name in BY_NAME if name.startswith("wrong_elsewhere/")} <= set(names)


@pytest.mark.parametrize(
    ("name", "policy"),
    [(name, known.policy) for known in CORPUS for name in known.programs if known.policy != "min-cut"],
)
def test_under_the_policy_of_its_case(name: str, policy: str) -> None:
    judge(BY_NAME[name], direct(CompileOptions(backend="eager", policy=policy)))
