"""Logs of several releases of torch say the same about the same programs.

`scripts/trace/release_logs.py` writes them, with `tests/trace/programs/breaks.py` and `dynamic.py` under
`aot_eager`; releases that lack a fact are named beside it.
"""

from pathlib import Path

import pytest

from aotlens.model.dynamo import Break, Compilation
from aotlens.model.report import Report, Target
from aotlens.trace.build import build_report
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.source.source_lines import Sources
from aotlens.trace.source.workspace import Workspace

HERE = Path(__file__).parent
FOLDERS = sorted(HERE.joinpath("releases").iterdir(), key=lambda folder: int(folder.name.partition(".")[2]))
RELEASES = [folder.name for folder in FOLDERS]
WITHOUT_VERSION = ("2.6", "2.8", "2.10")
WITH_CODES = ("2.12", "2.14", "2.15")
WITH_WRAPPER = ("2.14", "2.15")


def report_of(release: str, name: str) -> Report:
    trace = open_trace(HERE / "releases" / release / f"{name}.log.gz")
    return build_report(trace, "test", locate=Sources(Workspace(HERE / "programs")))


def breaks_of(report: Report) -> tuple[Break, ...]:
    assert report.dynamo is not None
    return tuple(report.dynamo.breaks)


def recompilations_of(report: Report) -> list[Compilation]:
    assert report.dynamo is not None
    return [row for function in report.dynamo.functions for row in function.recompilations]


@pytest.fixture(scope="module", params=RELEASES)
def breaks(request: pytest.FixtureRequest) -> tuple[str, Report]:
    return request.param, report_of(request.param, "breaks")


@pytest.fixture(scope="module", params=RELEASES)
def dynamic(request: pytest.FixtureRequest) -> tuple[str, Report]:
    return request.param, report_of(request.param, "dynamic")


def test_there_is_a_log_of_old_and_new_releases() -> None:
    assert [RELEASES[0], RELEASES[-1]] == ["2.6", "2.15"]


def test_every_record_is_of_a_known_kind(breaks: tuple[str, Report], dynamic: tuple[str, Report]) -> None:
    for _, report in (breaks, dynamic):
        assert report.log is not None
        assert [kind.name for kind in report.log.unused if not kind.is_known] == []
        assert report.incomplete is None
        assert report.not_compiled == ()


def test_the_version_is_that_of_the_log(breaks: tuple[str, Report]) -> None:
    release, report = breaks
    expected = "unknown" if release in WITHOUT_VERSION else release
    assert report.torch.startswith(expected)


def test_breaks_have_line_reason_and_code(breaks: tuple[str, Report]) -> None:
    release, report = breaks
    printed, branch = breaks_of(report)
    assert (printed.span.line, branch.span.line) == (19, 21)
    assert (printed.effect, branch.effect) == ("graph split", "graph split")
    if release == "2.6":
        assert (printed.reason, branch.reason) == ("builtin: print", "Data-dependent jump")
        return
    assert printed.reason.startswith("Dynamo does not know how to trace builtin operator `print`")
    assert branch.reason.startswith("Detected data-dependent branching")
    if release in WITH_CODES:
        assert (printed.code, branch.code) == ("GB0059", "GB0170")
        assert branch.hint.startswith("compute both sides")
    ours, torchs = "remove it, or allow", "Avoid calling builtin `print`"
    assert printed.hint.startswith(ours if printed.code else torchs)


def test_a_recompilation_names_the_value_that_changed(breaks: tuple[str, Report]) -> None:
    _, report = breaks
    (recompilation,) = recompilations_of(report)
    cause = recompilation.cause
    assert cause is not None
    assert (cause.kind, cause.name, cause.old, cause.against) == ("number", "self.scale", "1.5", "1/0")
    assert cause.call is not None
    assert cause.call.line == 37


def test_a_recompilation_names_the_size_that_changed(dynamic: tuple[str, Report]) -> None:
    _, report = dynamic
    (recompilation,) = recompilations_of(report)
    cause = recompilation.cause
    assert cause is not None
    assert (cause.kind, cause.name, cause.old, cause.new) == ("size", "x.shape[0]", "8", "12")
    symbolic = report.targets[1]
    assert [guard.expression for guard in symbolic.guards] == ["5 <= x.shape[0]"]


def test_compile_time_is_the_sum_of_the_metrics_without_events(breaks: tuple[str, Report]) -> None:
    dynamo = breaks[1].dynamo
    assert dynamo is not None
    each = [row.seconds.total for function in dynamo.functions for row in function.compilations]
    assert dynamo.compile_seconds.total == pytest.approx(sum(each))
    assert dynamo.compile_seconds.total > 0


def test_targets_are_the_parts_of_the_program(breaks: tuple[str, Report]) -> None:
    _, report = breaks
    assert [(target.qualname, target.span.line if target.span else None) for target in report.targets] == [
        ("Net.forward", 17),
        ("Net.forward after line 19", 19),
        ("Net.forward after line 21", 21),
        ("Net.forward after line 19", 19),
        ("views", 26),
    ]
    for target in report.targets:
        assert [stage.name for stage in target.stages] == ["captured", "joint", "forward", "backward"]


def saved(target: Target) -> list[tuple[str, int, int | None]]:
    assert target.partition is not None
    return [(row.owner, row.bytes, row.span.line if row.span else None) for row in target.partition.saved]


def test_saved_values_have_owner_bytes_and_line(
    breaks: tuple[str, Report], dynamic: tuple[str, Report]
) -> None:
    assert [saved(target) for target in breaks[1].targets] == [
        [("input", 0, None)],
        [("new", 128, 20)],
        [("input", 0, None)],
        [("new", 4, None), ("new", 128, 20)],
        [("input", 0, None)],
    ]
    assert [saved(target) for target in dynamic[1].targets] == [[("new", 512, 15)], [("new", 768, 15)]]
    recomputed = [target.partition.recomputed for target in breaks[1].targets if target.partition]
    assert [[row.node for row in rows] for rows in recomputed] == [[], [], ["sin"], [], []]


def test_aliases_and_mutations_are_those_of_the_program(
    breaks: tuple[str, Report], dynamic: tuple[str, Report]
) -> None:
    assert [output.output_type for output in breaks[1].targets[-1].outputs] == [
        "alias_of_input",
        "alias_of_intermediate_base_is_user_output",
        "non_alias",
    ]
    for target in dynamic[1].targets:
        mutated = [row for row in target.inputs if row.mutates_data]
        assert [(row.name, [site.span.line for site in row.sites]) for row in mutated] == [("total", [12])]


def test_the_wrapper_is_shown_where_torch_logs_it(breaks: tuple[str, Report]) -> None:
    release, report = breaks
    wrapper = report.targets[0].wrapper
    assert (wrapper is not None) == (release in WITH_WRAPPER)
    if wrapper is not None:
        assert [step.name for step in wrapper.steps] == [
            "runtime_wrapper_orchestration",
            "compiled_fn_wrapper",
            "compiled_function_forward",
            "compiled_function_backward",
            "backward_prologue",
            "backward_epilogue",
        ]
