"""The reports made of torch's logs agree with our own reports of the same programs.

`scripts/trace/agreement.py` compares all programs, for the table in docs/attach.md; here are three cheap
ones.  Each traces its program once, which takes 1 to 3 s.
"""

from pathlib import Path

import pytest

from scripts.trace.agreement import SAVED, Agreement, added, compare, log_report, our_report

LOGS = Path(__file__).parent / "logs"


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("program", "count", "differing"),
    [
        ("checkpoint", 17, {}),
        ("custom", 13, {}),
        ("breaks", 42, {"input": 1, "mutation": 1}),
    ],
)
def test_facts_of_a_log_are_those_of_our_report(program: str, count: int, differing: dict[str, int]) -> None:
    """`breaks`: a number that Dynamo lifts to an input has no source in the log, so its name differs."""
    agreements = compare(log_report(LOGS / f"{program}-aot_eager"), our_report(program))
    shared = {kind: row for kind, row in agreements.items() if kind != SAVED}
    assert sum(row.total for row in shared.values()) == count
    assert {kind: row.total - row.both for kind, row in shared.items() if row.total > row.both} == differing
    assert agreements[SAVED].both


def test_a_fact_on_both_sides_that_differs_counts_once() -> None:
    row = Agreement(3, (("input", "a"),), (("input", "b"), ("input", "c")))
    assert row.total == 5
    assert added([{"input": row}, {"input": row, "output": row}])["input"].total == 10
