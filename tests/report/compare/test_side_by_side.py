"""Two reports side by side, as rows, on records and on real traces."""

from dataclasses import replace

import pytest

from aotlens.compare.side_by_side import SideRow, TargetPair, side_by_side
from aotlens.compare.words import line_facts
from aotlens.model.report import Report
from aotlens.view.tabs.side_by_side import (
    changed_rows,
    pair_summary,
    side_details,
    side_listing,
    side_names,
    summary_lines,
)
from aotlens.view.tabs.tables.rows import Part
from tests.report.compare.test_difference import SOURCE, Traces
from tests.report.dynamo_sample import sample_dynamo
from tests.report.sample import sample_report
from tests.report.sample_kernels import gpu_sample

NAMES = ("old.json", "new.json")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Traces:
    return Traces(tmp_path_factory.mktemp("sides"))


def pair_of(traces: Traces, old: str, new: str) -> TargetPair:
    before, after = (Report("", "", "", (traces.of(source),)) for source in (old, new))
    (pair,) = side_by_side(before, after, NAMES).targets
    return pair


def positions(rows: tuple[SideRow, ...]) -> list[tuple[str, int | None, int | None]]:
    return [
        (
            row.kind,
            row.before.line.number if row.before else None,
            row.after.line.number if row.after else None,
        )
        for row in rows
    ]


def test_lines_are_beside_their_counterparts(traces: Traces) -> None:
    new = SOURCE.replace("x @ w)\n", "x @ w)\n    h = torch.exp(h)\n").replace("2.0", "3.0")
    pair = pair_of(traces, SOURCE, new)
    assert [row for row in positions(pair.rows) if row[1] != 3] == [
        ("same", 4, 4),
        ("added", None, 5),
        ("same", 6, 7),
        ("changed", 7, 8),
    ]
    added = next(row for row in pair.rows if row.kind == "added")
    assert added.after is not None
    assert added.after.line.text == "h = torch.exp(h)"
    assert added.nodes[0].node.target == "aten.exp.default"


def test_a_line_that_is_gone_stays_at_its_place(traces: Traces) -> None:
    old = SOURCE.replace("x @ w)\n", "x @ w)\n    h = torch.exp(h)\n")
    rows = [row for row in positions(pair_of(traces, old, SOURCE).rows) if row[1] != 3]
    assert rows[1] == ("removed", 5, None)
    assert rows[2] == ("same", 7, 6)


def test_equal_reports_have_no_changed_line(traces: Traces) -> None:
    pair = pair_of(traces, SOURCE, f"# a comment\n{SOURCE}")
    assert changed_rows(pair) == ()
    assert pair_summary(pair) == "no line differs"
    report = sample_report()
    assert side_by_side(report, report, NAMES).is_empty


def test_two_gpus_are_compared_by_time() -> None:
    old = gpu_sample()
    target = replace(old.targets[0], gpu_totals=(replace(old.targets[0].gpu_totals[0], time_us=None),))
    (line,) = target.gpu_lines
    faster = replace(
        target,
        gpu_name="B200",
        gpu_lines=(replace(line, floor_us=1.5),),
        gpu_totals=(replace(target.gpu_totals[0], floor_us=1.5),),
    )
    old = replace(old, targets=(replace(target, gpu_name="H100"), *old.targets[1:]))
    comparison = side_by_side(old, replace(old, targets=(faster, *old.targets[1:])), NAMES)
    pair = comparison.targets[0]
    assert side_names(comparison, pair) == ("old.json on H100", "new.json on B200")
    (row,) = changed_rows(pair)
    assert row.before is not None
    assert "2.00 µs" in list(line_facts(row.before.weights))
    assert row.change.gpu_us == -0.5
    assert pair_summary(pair) == "1 line differs · time on the GPU −0.50 µs"


def test_a_graph_break_is_a_fact_of_its_line() -> None:
    report = sample_report()
    dynamo = sample_dynamo()
    target = report.targets[0]
    span = target.stages[0].nodes[-1].spans[0]
    function = replace(dynamo.functions[0], breaks=(replace(dynamo.breaks[0], span=span),))
    broken = replace(report, dynamo=replace(dynamo, functions=(function,)))
    pair = side_by_side(report, broken, NAMES).targets[0]
    (row,) = changed_rows(pair)
    assert row.after is not None
    assert (row.after.breaks, row.after.line.number) == (1, span.line)
    cells = side_listing((row,), NAMES).rows.cells(0)
    texts = [cell.text if isinstance(cell, Part) else cell for cell in cells]
    assert texts[6].startswith("1 graph break")
    assert texts[7] == "+1 graph break"


def test_a_target_of_one_side_only() -> None:
    report = sample_report()
    fewer = replace(report, targets=report.targets[:1])
    for old, new, presence in ((report, fewer, "removed"), (fewer, report, "added")):
        pair = side_by_side(old, new, NAMES).targets[1]
        assert (pair.qualname, pair.presence) == ("score", presence)
        assert {row.kind for row in pair.rows} == {presence}


def test_details_and_totals_name_both_sides(traces: Traces) -> None:
    pair = pair_of(traces, SOURCE, SOURCE.replace("range(3)", "range(4)"))
    (row,) = changed_rows(pair)
    details = [line.text for line in side_details(row, NAMES)]
    assert details[0].startswith("old.json  ")
    assert any("+ forward tanh_3 = aten.tanh.default" in text for text in details)
    totals = [line.text for line in summary_lines(pair, NAMES)]
    assert totals[0].startswith("old.json → new.json")
    assert any(text.startswith("  saved") and text.endswith("+256 B") for text in totals)
