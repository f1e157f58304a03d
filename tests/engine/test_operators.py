"""A sample of torch's operator and module databases, as eager; `make test-ops` runs all of them."""

import pytest

from tests.operators.cases import Case, all_cases
from tests.operators.judging import judge_case

pytestmark = pytest.mark.filterwarnings("ignore")  # the samples warn as eager warns

SHARE = 32
"""One case of so many is run here."""
SAMPLES = 2
CASES = list(all_cases())[::SHARE]


@pytest.mark.rotates
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key.replace(" ", "-"))
def test_case(case: Case) -> None:
    judged = judge_case(case, stop=SAMPLES)
    assert judged.verdict != "differs", judged.reason
