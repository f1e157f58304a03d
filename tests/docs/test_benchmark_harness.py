"""The benchmarks' own arithmetic; no test here asserts a time."""

from collections.abc import Callable

import pytest

from benchmarks.harness import Samples, growth_exponent, show_cell, take_turns
from benchmarks.tables import markdown


def test_growth_exponent_of_a_power() -> None:
    sizes = [10, 20, 40]
    assert growth_exponent(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)


def test_contenders_take_turns_and_nobody_is_always_first() -> None:
    order: list[str] = []

    def contender(name: str) -> Callable[[], float]:
        return lambda: order.append(name) or 1.0  # type: ignore[func-returns-value]

    samples = take_turns({"a": contender("a"), "b": contender("b")}, rounds=2)
    assert order == ["a", "b", "b", "a"]
    assert samples == {"a": Samples((1.0, 1.0)), "b": Samples((1.0, 1.0))}


def test_median_and_spread() -> None:
    samples = Samples((1.0, 2.0, 3.0, 4.0, 5.0))
    assert samples.median_s == 3.0
    assert samples.spread == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("cell", "shown"), [("x", "x"), (12.0, "12"), (0.81234, "0.812"), (1234.5, "1,234"), (12.345, "12.3")]
)
def test_cells(cell: str | float, shown: str) -> None:
    assert show_cell(cell) == shown


def test_markdown_of_a_table() -> None:
    table = {"title": "T", "columns": ["case", "ms"], "rows": [["a", 1.5]], "note": "n"}
    assert markdown(table) == "### T\n\n| case | ms |\n|---|--:|\n| a | 1.5 |\n\nn\n"
