"""Two results of `aotlens fit`: peaks, kinds and lines that differ, in text, Markdown and JSON."""

from dataclasses import replace
from typing import Any

from aotlens.compare.difference import report_change
from aotlens.compare.step import StepChange, StepPart, step_change, step_gpu_text, step_peak_text
from aotlens.model.codec import encode_record
from aotlens.model.fit import Fit, FitLine, FitMoment, KindBytes
from aotlens.model.source import Span
from aotlens.render.markdown import difference_markdown
from aotlens.render.text.difference import difference_lines
from tests.fit.sample import GIB, MIB, on_gpu, sample_fit, sample_fit_report

SAVED = "saved activation"


def line(number: int, text: str, mib: int) -> FitLine:
    return FitLine(Span("train.py", number, 4, number, 9), mib * MIB, "saved activation", 1, text)


def fit(*rows: FitLine, phase: str = "backward") -> Fit:
    peak_bytes = sum(row.bytes for row in rows)
    kinds = (KindBytes("saved activation", peak_bytes, count=len(rows)),)
    return Fit(peak_bytes, FitMoment("forward" if phase == "forward" else "backward"), kinds, rows)


def test_lines_are_paired_by_expression_since_edits_move_them() -> None:
    old = fit(line(10, "self.up(x)", 8), line(11, "gelu(h)", 4), phase="forward")
    new = fit(line(12, "self.up(x)", 8), line(13, "self.norm(h)", 1))
    change = step_change(old, new)
    assert change.kinds == (StepPart(SAVED, 12 * MIB, 9 * MIB),)
    assert change.lines == (
        StepPart(f"gelu(h), {SAVED}", 4 * MIB, 0, "train.py:11"),
        StepPart(f"self.norm(h), {SAVED}", 0, MIB, "train.py:13"),
    )
    assert step_peak_text(change) == "12.0 MiB → 9.0 MiB (−3.0 MiB), in the backward, before in the forward"
    total = sum(part.change_bytes for part in change.lines)
    assert (
        total == sum(part.change_bytes for part in change.kinds) == change.after_bytes - change.before_bytes
    )


def test_equal_expressions_on_several_lines_count_together() -> None:
    old = fit(line(1, "f(x)", 2), line(2, "f(x)", 2))
    assert step_change(old, fit(line(7, "f(x)", 4))).is_empty


def test_a_copy_of_the_script_is_compared_line_by_line() -> None:
    copied = replace(line(9, "self.up(x)", 5), span=Span("copy.py", 9, 4, 9, 9))
    change = step_change(fit(line(10, "self.up(x)", 8)), fit(copied))
    assert change.lines == (StepPart(f"self.up(x), {SAVED}", 8 * MIB, 5 * MIB, "copy.py:9"),)


def test_whether_it_fits_is_compared_for_one_gpu() -> None:
    fits, fails = on_gpu(sample_fit(), GIB), on_gpu(sample_fit(), 13 * MIB)
    assert step_gpu_text(step_change(fits, fails)) == (
        "does not fit T4, before it did: 14.0 MiB → 14.0 MiB reserved of 13.0 MiB"
    )
    assert step_gpu_text(step_change(sample_fit(), fits)) == ""


def test_text_markdown_and_json_have_the_same_change() -> None:
    old = sample_fit()
    rows = (replace(old.by_line[0], bytes=MIB), *old.by_line[1:])
    kinds = (replace(old.by_kind[0], bytes=MIB), *old.by_kind[1:])
    new = replace(old, step_peak_bytes=7 * MIB, by_line=rows, by_kind=kinds)
    change = report_change(sample_fit_report(old), sample_fit_report(new))
    assert isinstance(change.step, StepChange)
    text = "\n".join(shown.plain for shown in difference_lines(change, 100))
    markdown = difference_markdown(change, ())
    for words in (
        "12.0 MiB → 7.0 MiB (−5.0 MiB), in the backward",
        "6.0 MiB → 1.0 MiB",
        "sample_model.py:23",
    ):
        assert words in text
        assert words in markdown
    step: Any = encode_record(change)["step"]
    assert step["kinds"] == [{"name": SAVED, "before_bytes": 6 * MIB, "after_bytes": MIB, "line": ""}]


def test_equal_results_have_no_difference() -> None:
    change = report_change(sample_fit_report(), sample_fit_report())
    assert change.is_empty
    assert [shown.plain for shown in difference_lines(change, 100)] == ["step memory: no difference"]
    assert "No difference." in difference_markdown(change, ())
