"""The page has one row per program, and what was not run says so."""

from dataclasses import replace
from pathlib import Path

from corpus.page import page
from corpus.records import Graphs
from corpus.verdicts import judge
from tests.corpus.made import PROGRAM, REFUSED, TEXTS, measured, ran

OTHER = replace(PROGRAM, path=Path("corpus/programs/vision/other.py"), mode="inference")


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| [")]


def targets(text: str) -> list[str]:
    table = text.partition("## Targets\n")[2].partition("Training has")[0]
    return [line.rpartition(" | ")[2].removesuffix(" |") for line in table.strip().splitlines()[2:]]


def test_a_program_that_was_run_and_one_that_was_not() -> None:
    text = page([PROGRAM, OTHER], {PROGRAM.name: judge(PROGRAM, measured())}, {}, "cpu")
    assert "1 of 2 programs were run. `not run` marks the other 1; the targets say nothing of them." in text
    assert rows(text) == [
        (
            "| [net](../corpus/programs/recipes/net.py) | training | 0 | equal | 1e-06 / 2e-06 | 2 | equal "
            "| 1.00 (10 ms / 10 ms) | 0.50 (1.0 s / 2.0 s) | 0.83 (1.2 s / 1.5 s) | 0.50 (1 KiB / 2 KiB) |  |"
        ),
        "| [other](../corpus/programs/vision/other.py) | inference | not run | | | | | | | | |  |",
    ]
    assert targets(text) == [
        "1 of 1 (100 %)",
        "1 of 1 (100 %)",
        "0",
        "median 1.00, worst 1.00 (`recipes/net`), of 1",
        "median 0.50, worst 0.50 (`recipes/net`), of 1",
        "median 0.83, worst 0.83 (`recipes/net`), of 1",
        "median 0.50, worst 0.50 (`recipes/net`), of 1",
    ]
    assert "| training | 1 | 1.00 | 0.50 | 0.83 | 0.50 |\n| inference | 0 | – | – | – | – |" in text


def test_rows_of_an_earlier_engine_are_counted() -> None:
    text = page([PROGRAM], {PROGRAM.name: judge(PROGRAM, measured())}, {}, "cpu", outdated=1)
    assert "Rows measured with an earlier state of the engine, or with other libraries: 1." in text


def test_a_failing_row_asks_for_its_reason() -> None:
    judged = {PROGRAM.name: judge(PROGRAM, measured(ran(TEXTS, exit_code=2), Graphs(1, (REFUSED,))))}
    (row,) = rows(page([PROGRAM], judged, {}, "cpu"))
    assert row.startswith(
        "| [net](../corpus/programs/recipes/net.py) | training | **2, eager 0, inductor 0** | equal "
        "| 1e-06 / 2e-06 | **1; not compiled: AL402 Net net.py:4: `x \\| y` is not supported** |"
    )
    assert row.endswith("| **not explained** |")
    (row,) = rows(page([PROGRAM], judged, {PROGRAM.name: "torch has no kernel for it"}, "cpu"))
    assert row.endswith("| torch has no kernel for it |")


def test_a_step_that_takes_too_long_asks_for_its_reason() -> None:
    judged = {PROGRAM.name: judge(PROGRAM, measured(step_s=0.012))}
    (row,) = rows(page([PROGRAM], judged, {}, "cpu"))
    assert "| **1.20 (12 ms / 10 ms)** |" in row
    assert row.endswith("| **not explained** |")


def test_a_program_that_fails_under_torch_compile_is_left_out_of_the_targets() -> None:
    done = measured()
    runs = tuple(
        replace(run, ran=ran(TEXTS, exit_code=1)) if run.way == "inductor" else run for run in done.runs
    )
    text = page([PROGRAM], {PROGRAM.name: judge(PROGRAM, replace(done, runs=runs))}, {}, "wall")
    assert "1 do not run under torch.compile as installed here" in text
    assert targets(text) == ["not run", "not run", "not run", *["not measured"] * 4]
    assert rows(text)[0].endswith("| does not run under torch.compile here |")
