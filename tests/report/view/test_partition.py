"""How the partition's reasons, certificates, frontier and what-ifs read."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.text import Text

from aotlens.model import Certificate, FrontierPoint
from aotlens.render.text.activations import partition_lines
from aotlens.render.text.layout import Page, to_text
from aotlens.render.text.tradeoffs import what_if_lines
from aotlens.view.partition.frontier import FrontierRow, chosen_point, frontier_rows
from aotlens.view.partition.reasons import budget_text, certificate_text, listed, why_text
from tests.conftest import Golden
from tests.report.sample_partition import chosen_partition

PARTITION = chosen_partition()
CERTIFICATE = Certificate(
    "mm", "recomputing it would give other random numbers", None, ("mm", "add"), None, None, 1536, 0
)
PRICE = "the next cheapest set costs 1.5 KiB more"


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are shown relative to the current folder."""
    monkeypatch.chdir(Path(__file__).parents[3])


def plain(lines: tuple[Text, ...]) -> list[str]:
    return to_text(lines).splitlines()


def test_a_partition_with_choices(golden: Golden) -> None:
    golden("report/partition.txt", to_text(partition_lines(PARTITION, Page())))


@pytest.mark.parametrize(
    ("certificate", "text"),
    [
        (
            CERTIFICATE,
            f"recomputing it would need mm (recomputing it would give other random numbers); {PRICE}",
        ),
        (
            replace(CERTIFICATE, path=("mm",), instead=("a",)),
            f"not recomputed: recomputing it would give other random numbers; {PRICE}, saving a instead",
        ),
        (
            replace(CERTIFICATE, above=None, price_bytes=-512, price_flops=2000),
            "the next cheapest set costs 2.0 kFLOP more and 512 B less",
        ),
        (
            replace(CERTIFICATE, above=None, price_bytes=None),
            "no other set provides all values that the backward reads",
        ),
        (replace(CERTIFICATE, above=None, price_bytes=0), "the next cheapest set costs the same"),
    ],
)
def test_certificates(certificate: Certificate, text: str) -> None:
    assert certificate_text(certificate) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [("a", "a"), ("ab", "a and b"), ("abc", "a, b and c"), ("abcde", "a, b, c and 2 more")],
)
def test_names(names: str, text: str) -> None:
    assert listed(names) == text


@pytest.mark.parametrize("most", [3, 8, 33, 40])
def test_the_frontier_keeps_its_ends_and_what_was_compiled(most: int) -> None:
    rows = frontier_rows(PARTITION, most)
    assert len(rows) == min(most, 33)
    assert (rows[0], rows[-1]) == (FrontierRow(8192, 20480, False), FrontierRow(24576, 0, False))
    assert [row for row in rows if row.chosen] == [FrontierRow(16384, 10240, True)]
    assert list(rows) == sorted(rows, key=lambda row: row.saved_bytes)


def test_what_was_compiled_stands_beside_a_frontier_that_beats_it() -> None:
    above = replace(PARTITION, frontier=(FrontierPoint(16384, 100),))
    assert frontier_rows(above, 8) == (FrontierRow(16384, 100, False), FrontierRow(16384, 10240, True))


def test_no_frontier_no_rows() -> None:
    assert frontier_rows(replace(PARTITION, frontier=()), 8) == ()
    assert chosen_point(PARTITION) == FrontierPoint(16384, 10240)


def test_a_budget_that_is_met_exactly() -> None:
    assert PARTITION.budget is not None
    met = replace(PARTITION.budget, bound_flops=10240, exact=True, method="integer programming")
    assert budget_text(met) == (
        "budget 16.0 KiB: 16.0 KiB saved, 10.2 kFLOP recomputed, the least recomputation that fits"
        " (integer programming)"
    )


def test_a_what_if_that_changes_nothing() -> None:
    answer = replace(PARTITION.what_if[0], after=PARTITION.what_if[0].before)
    lines = plain(tuple(what_if_lines(answer, PARTITION, 100)))
    assert lines[1].split() == ["saved", "16.0", "KiB", "→", "16.0", "KiB", "the", "same"]


def test_why_in_one_line() -> None:
    costly, chosen, *_ = PARTITION.saved
    assert why_text(costly) == "expensive to recompute (matrix product) [costly]"
    assert why_text(chosen) == (
        "the least recomputation within the memory budget [budget]; recomputing it would need addmm in"
        f" self.up(x) (expensive to recompute); {PRICE} and 2.0 kFLOP less, saving sigmoid and mul_1"
        " instead; overrules an activation checkpoint"
    )
    assert why_text(PARTITION.recomputed[0]) == "an override in the policy [user]"
