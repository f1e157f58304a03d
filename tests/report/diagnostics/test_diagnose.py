"""Each finding fires on its case, says the cost, and stays silent on idiomatic code."""

from dataclasses import replace
from pathlib import Path

import pytest

from aotlens.diagnostics.correctness import with_verdict
from aotlens.diagnostics.diagnose import diagnose
from aotlens.diagnostics.failures import from_failure
from aotlens.diagnostics.findings import MIB, Limits
from aotlens.diagnostics.mutation import mutation_fixes
from aotlens.model import Base, Diagnostic, Edit, Input, Mode, Output, Related, Site, Span, Target, Tensor
from aotlens.model.failure import Failure
from aotlens.model.source import Cost, Verdict
from tests.report.sample import inference_target, site, span, tensor, training_target

WRITE = site("cache.mul_(0.9)", "aten.mul_.Tensor")
STEPS = site("self.steps += 1", "aten.add_.Tensor")
BIG = Tensor("f32", (1024, 1024), (1024, 1), "cpu", True, 4 * MIB)


def _target(*inputs: Input, outputs: tuple[Output, ...] = ()) -> Target:
    """A training target with nothing but these."""
    return replace(
        training_target(), inputs=inputs, outputs=outputs, partition=None, wrapper=None, diagnostics=()
    )


def _argument(**changes: object) -> Input:
    plain = Input(0, "cache", "UserInput", None, tensor("f32[32, 16]"), sites=(WRITE,))
    return replace(plain, **changes)  # type: ignore[arg-type]


def _codes(target: Target) -> list[tuple[str, str]]:
    return [(found.code, found.severity) for found in diagnose(target)]


COPIED = _argument(mutation_type="mutated_out_graph", mutates_data=True)
KEPT = _argument(mutation_type="mutated_in_graph", mutates_data=True)


def test_copied_argument() -> None:
    assert diagnose(_target(COPIED)) == (
        Diagnostic(
            "AL101",
            "information",
            "`cache` is mutated in place, and autograd must record it: 2.0 KiB are copied back on every"
            " call; return the new value",
            WRITE.span,
            fixes=mutation_fixes(COPIED),
            cost=Cost("bytes per call", 2048, 0.0625),
        ),
    )
    assert [fix.title for fix in mutation_fixes(COPIED)] == [
        "Bind the new value",
        "Write to a copy of `cache`, so that the caller's tensor does not change",
    ]


def test_a_large_copy_is_a_warning_and_lists_every_write() -> None:
    found = diagnose(_target(replace(COPIED, tensor=BIG, sites=(WRITE, STEPS))))[0]
    assert (found.severity, found.related) == (
        "warning",
        (Related(STEPS.span, "also here"),),
    )
    assert "4.0 MiB are copied back" in found.message


def test_buffer_with_history() -> None:
    buffer = replace(COPIED, kind="Buffer", name="ema", fqn="ema")
    assert _codes(_target(buffer)) == [("AL105", "warning")]


def test_hidden_change_offers_no_grad_where_the_write_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("def f(w):\n    w.data.mul_(2)\n    return w.data.mul_(3)\n", encoding="utf-8")
    alone = Site(Span(str(path), 2, 4, 2, 18), "w.data.mul_(2)")
    nested = Site(Span(str(path), 3, 11, 3, 25), "w.data.mul_(3)")
    weight = replace(KEPT, requires_grad=True, hidden_from_autograd=True, name="w", sites=(alone, nested))
    found = diagnose(_target(weight))[0]
    assert (found.code, found.severity, found.span) == ("AL102", "warning", alone.span)
    assert [fix.edits for fix in found.fixes] == [
        (Edit(alone.span, "with torch.no_grad():\n        w.mul_(2)"),),
    ]


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (_argument(mutation_type="mutated_out_graph", mutates_metadata=True), "AL103"),
        (_argument(mutation_type="mutated_out_graph", mutates_metadata=True, mutates_data=True), "AL103"),
        (_argument(mutation_type="mutated_out_graph", mutates_storage_metadata=True), "AL104"),
    ],
)
def test_changed_geometry(entry: Input, code: str) -> None:
    assert _codes(_target(entry)) == [(code, "warning")]


def test_a_changed_shape_is_reported_where_it_changes() -> None:
    write, transpose = WRITE, STEPS
    entry = _argument(
        mutation_type="mutated_out_graph",
        mutates_metadata=True,
        mutates_data=True,
        sites=(write, transpose),
        metadata_sites=(transpose,),
    )
    assert diagnose(_target(entry))[0].span == transpose.span


def test_changed_duplicate() -> None:
    twin = _argument(index=1, name="b", duplicate_of=0, shares_storage_with=(0,), sites=())
    found = diagnose(_target(replace(KEPT, name="a", shares_storage_with=(1,)), twin))
    assert [entry.message for entry in found] == [
        "`a` and `b` are the same tensor, which is mutated: the graph is valid only for such calls"
    ]


def test_changed_views_of_one_storage_are_told_once() -> None:
    first = replace(KEPT, name="a", shares_storage_with=(1,))
    second = replace(KEPT, index=1, name="b", shares_storage_with=(0,))
    assert _codes(_target(first, second)) == [("AL202", "warning")]


@pytest.mark.parametrize(("count", "codes"), [(3, []), (4, [("AL203", "information")])])
def test_many_views(count: int, codes: list[tuple[str, str]]) -> None:
    view = Output(0, "out", tensor("f32[16]"), "alias_of_input", Base("input", 0), sites=(site("cache[0]"),))
    assert _codes(_target(_argument(), outputs=(view,) * count)) == codes


def test_large_saved_values_fold_layers() -> None:
    target = _target(_argument())
    partition = training_target().partition
    assert partition is not None
    values = tuple(replace(partition.saved[0], bytes=4 * MIB) for _ in range(3))
    small = replace(partition.saved[1], bytes=9 * MIB)
    saved = replace(partition, saved=(*values, small), saved_bytes=21 * MIB)
    assert [found.message for found in diagnose(replace(target, partition=saved))] == [
        "`hidden` saves 9.0 MiB for the backward, 43% of all saved bytes: kept alive by an output",
        (
            "`self.up(x)` saves 12.0 MiB (3 × 4.0 MiB) for the backward, 57% of all saved bytes: expensive"
            " to recompute (matrix product)"
        ),
    ]


def test_saved_values_below_the_limits_are_not_told() -> None:
    assert not [found for found in diagnose(training_target()) if found.code == "AL301"]
    lower = Limits(saved_bytes=1)
    assert [found.code for found in diagnose(training_target(), lower)] == ["AL101", "AL301"]


CACHE = replace(COPIED, under_no_grad=True, tensor=replace(BIG, bytes=512 * MIB))


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_large_write_back(mode: Mode) -> None:
    assert [entry.message for entry in diagnose(replace(_target(CACHE), mode=mode))] == [
        (
            "the wrapper copies the new value of `cache` after the graph: 512.0 MiB on every call; write"
            " only the slice that changes, or return the new value"
        )
    ]


def test_one_copy_is_told_once() -> None:
    assert _codes(_target(replace(CACHE, under_no_grad=False))) == [("AL101", "warning")]


def test_a_large_write_inside_the_graph_is_fine() -> None:
    assert not diagnose(_target(replace(CACHE, mutation_type="mutated_in_graph")))


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(replace(KEPT, kind="Buffer", under_no_grad=True), id="batch norm statistics"),
        pytest.param(replace(KEPT, kind="Buffer"), id="step counter"),
        pytest.param(replace(KEPT, under_no_grad=True), id="cache under no_grad"),
        pytest.param(replace(COPIED, under_no_grad=True), id="cache written by the wrapper"),
        pytest.param(
            replace(KEPT, kind="Parameter", requires_grad=True, under_no_grad=True), id="ema weights"
        ),
        pytest.param(replace(KEPT, hidden_from_autograd=True), id=".data of a tensor without gradient"),
        pytest.param(
            _argument(duplicate_of=1, kind="Parameter", shares_storage_with=(1,)), id="tied weights"
        ),
        pytest.param(_argument(duplicate_of=1, shares_storage_with=(1,)), id="attention(x, x, x)"),
        pytest.param(_argument(shares_storage_with=(1,)), id="views of one tensor, only read"),
    ],
)
def test_idiomatic_code_has_no_finding(entry: Input) -> None:
    other = _argument(index=1, name="x", sites=())
    assert diagnose(_target(entry, other)) == ()


def test_inference_sample_has_no_finding() -> None:
    assert diagnose(inference_target()) == ()


def test_findings_without_a_site_stand_at_the_target() -> None:
    assert diagnose(_target(replace(COPIED, sites=())))[0].span == span("class Block(nn.Module):")


def test_failure_at_a_line() -> None:
    where = span("cache.mul_(0.9)")
    failure = Failure("user", "ValueError: no data", file=where.file, line=where.line)
    assert from_failure(failure) == Diagnostic("AL902", "error", "ValueError: no data", where)


@pytest.mark.parametrize(
    ("failure", "code", "severity"),
    [
        (Failure("timeout", "model.py ran longer than 120 s"), "AL907", "error"),
        (Failure("cancelled", "cancelled"), "AL910", "hint"),
        (Failure("unsupported", "not supported: a nested tensor"), "AL402", "error"),
        (Failure("unsupported", "not supported: control flow that depends on data"), "AL401", "error"),
    ],
)
def test_failures_without_a_line(failure: Failure, code: str, severity: str) -> None:
    found = from_failure(failure)
    assert (found.code, found.severity, found.span) == (code, severity, None)


def test_mismatch() -> None:
    target = _target()
    differs = with_verdict(target, Verdict("differs", "out differs"))
    assert differs.diagnostics == (Diagnostic("AL701", "error", "out differs", target.span),)
