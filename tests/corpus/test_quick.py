"""Programs that are checked without times: what passes, what fails, and what the page says of them."""

from dataclasses import replace
from pathlib import Path

from corpus.page import quick_section
from corpus.program import read_program
from corpus.quick import QuickRow, read_quick_rows, write_quick_rows
from corpus.records import Graphs, Measured, Ran, Run
from corpus.verdicts import Check, quick_checks
from tests.corpus.made import PROGRAM, REFUSED, TEXTS, ran


def checks(ours: Ran, graphs: Graphs | None = Graphs(2, ())) -> tuple[Check, Check, Check]:  # noqa: B008 (frozen)
    runs = (Run("eager", ran(TEXTS)), Run("quick", ours))
    return quick_checks(PROGRAM, Measured(PROGRAM.name, "digest", "engine", {}, runs, graphs, {}))


def test_the_same_output_and_verdict_pass() -> None:
    assert checks(ran(TEXTS)) == (Check("pass", "equal"), Check("pass", "2"), Check("pass", "equal"))


def test_another_output_a_graph_in_eager_and_a_mismatch_fail() -> None:
    ours = ran((*TEXTS[:-1], "step 5: loss 0.7"), exit_code=1)
    output, graphs, verdict = checks(ours, Graphs(1, (REFUSED,)))
    assert output == Check("fail", "line 7: `step 5: loss 0.7` instead of `step 5: loss 0.4`")
    assert graphs.state == "fail"
    assert verdict == Check("fail", "exit 1: MISMATCH net: gradient")


def test_code_that_dynamo_leaves_to_eager_is_no_failure() -> None:
    ours = replace(ran(TEXTS, exit_code=1), stderr_tail="Not compiled\n  net  whole function\nCompiled\n")
    assert checks(ours)[2] == Check("pass", "equal where compiled")


def row(digest: str, verify: Check) -> QuickRow:
    return QuickRow(digest, "engine", {"torch": "2.13.0"}, Check("pass", "equal"), Check("pass", "2"), verify)


def test_rows_are_kept_for_the_text_that_was_checked(tmp_path: Path) -> None:
    path = tmp_path / "recipes" / "net.py"
    path.parent.mkdir()
    path.write_text('"""A net."""\n# corpus: mode=training\n')
    program = read_program(path)
    kept = {program.name: row(program.digest, Check("pass", "equal"))}
    write_quick_rows(tmp_path / "quick.json", kept, [program])
    assert read_quick_rows(tmp_path / "quick.json", [program]) == kept
    path.write_text('"""Another net."""\n# corpus: mode=training\n')
    assert read_quick_rows(tmp_path / "quick.json", [read_program(path)]) == {}


def test_the_page_counts_what_passes() -> None:
    other = replace(PROGRAM, path=Path("corpus/programs/vision/other.py"))
    failed = Check("fail", "exit 1: it failed")
    rows = {PROGRAM.name: row("a", Check("pass", "equal")), other.name: row("b", failed)}
    text = quick_section([PROGRAM, other], rows)
    assert "1 of 2 pass every check." in text
    assert text.splitlines()[-2:] == [
        "| [net](../corpus/programs/recipes/net.py) | training | equal | 2 | equal |",
        "| [other](../corpus/programs/vision/other.py) | training | equal | 2 | **exit 1: it failed** |",
    ]
    assert quick_section([PROGRAM], {}) == ""
