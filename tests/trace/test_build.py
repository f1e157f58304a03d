"""The report of a log that another machine wrote: the facts that it holds, and no others."""

from pathlib import Path

import pytest

from aotlens.model.codec import dumps, loads
from aotlens.model.report import Report, Target
from aotlens.model.spans import text_of
from aotlens.trace.build import build_report
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.source.source_lines import Sources
from aotlens.trace.source.workspace import Workspace
from tests.trace.log_text import compiled, record

LOGS = Path(__file__).parent / "logs"


@pytest.fixture(scope="module", params=["net-aot_eager", "net-inductor"])
def report(request: pytest.FixtureRequest) -> Report:
    return build_report(open_trace(LOGS / request.param), "test")


@pytest.fixture(scope="module")
def inductor() -> Report:
    return build_report(open_trace(LOGS / "net-inductor"), "test")


def target_of(report: Report, qualname: str) -> Target:
    return next(target for target in report.targets if target.qualname == qualname)


def test_targets_are_the_graphs_of_the_log(report: Report) -> None:
    assert [(row.qualname, row.mode, row.frontend) for row in report.targets] == [
        ("forward", "training", "trace"),
        ("broken", "training", "trace"),
        ("broken after line 42", "training", "trace"),
        ("broken", "training", "trace"),
        ("broken after line 42", "training", "trace"),
        ("infer", "inference", "trace"),
    ]
    assert report.torch.startswith("2.13")


def test_node_counts_match_the_log(report: Report) -> None:
    """Each assignment of the printed AOT graphs is one node."""
    for target in report.targets:
        for stage in target.stages:
            printed = [line for line in stage.text.split("\n") if " = torch.ops." in line or "] = " in line]
            calls = [node for node in stage.nodes if node.op in ("call_function", "get_attr")]
            if stage.name in ("joint", "forward", "backward", "inference"):
                assert len(calls) >= len(printed) > 0
                assert len(calls) == sum(" = " in _code(line) for line in stage.text.split("\n"))


def _code(line: str) -> str:
    """The line without what frees names, flattens arguments, or is a comment."""
    return "" if "tree_flatten_spec" in line or line.strip().startswith("#") else line.partition(";  ")[0]


def test_inputs_have_the_users_names_and_kinds(report: Report) -> None:
    inputs = {row.name: row for row in target_of(report, "forward").inputs}
    assert inputs["self.count"].kind == "Buffer"
    assert inputs["self.count"].mutates_data
    assert inputs["self.count"].sites[0].text == "self.count.add_(1)"
    assert inputs["x"].kind == "UserInput"
    assert inputs["self.blocks[1].up.weight"].fqn == "blocks.1.up.weight"
    assert inputs["self.blocks[1].up.weight"].requires_grad


def test_outputs_have_torchs_classes(report: Report) -> None:
    kinds = [row.output_type for row in target_of(report, "forward").outputs]
    assert kinds[0] == "non_alias"
    assert kinds[1] in ("unsafe_view_alias", "alias_of_intermediate_save_as_output")


def test_saved_values_have_bytes_lines_and_readers(inductor: Report) -> None:
    partition = target_of(inductor, "forward").partition
    assert partition is not None
    saved = {row.node: row for row in partition.saved}
    assert (saved["addmm"].bytes, saved["addmm"].owner, saved["addmm"].donated) == (1024, "new", True)
    assert saved["addmm"].span is not None
    assert saved["addmm"].span.line == 21
    assert saved["addmm"].used_by
    assert saved["primals_5"].owner == "parameter"
    assert saved["primals_5"].bytes == 0
    assert partition.saved_bytes == sum(row.bytes for row in partition.saved)


def test_what_only_the_backward_computes_is_not_computed_again(report: Report) -> None:
    """The gradient of `sin` needs `cos`, which no part of the forward computes."""
    partition = target_of(report, "broken").partition
    assert partition is not None
    assert partition.recomputed == ()


def test_kernels_stand_at_lines(inductor: Report) -> None:
    kernels = target_of(inductor, "forward").kernels
    assert [row.kind for row in kernels[:2]] == ["generated", "library"]
    lines = {row.name: [span.line for span in row.spans] for row in kernels if row.phase == "forward"}
    assert lines["cpp_fused_gelu_1"] == [21]
    assert {row.phase for row in kernels} == {"forward", "backward"}


def test_each_call_of_a_library_stands_at_its_own_expression() -> None:
    """Provenance numbers the calls of each module from 1, and the files are another machine's."""
    sources = Sources(Workspace(LOGS.parent / "programs"))
    (target,) = build_report(open_trace(LOGS / "net-inductor"), "test", "0/0", sources).targets
    up, down, head = "self.up(self.norm(x))", "self.down(y)", "self.head(x)"
    calls = [row for row in target.kernels if row.name in ("extern_kernels.addmm", "extern_kernels.mm")]
    texts = [[text_of(span) for span in row.spans] for row in calls if row.phase == "forward"]
    assert texts == [[up], [down], [up], [down], [head]]
    backward = [text_of(span) for row in calls if row.phase == "backward" for span in row.spans]
    assert (backward[0], backward.count(up), backward.count(down)) == (head, 4, 4)


def test_breaks_and_recompilations_have_lines_and_values(report: Report) -> None:
    assert report.dynamo is not None
    (entry,) = report.dynamo.breaks
    assert (entry.span.line, entry.code, entry.effect) == (42, "GB0059", "graph split")
    causes = [row.cause for row in report.dynamo.recompilations]
    assert [(cause.kind, cause.name, cause.old) for cause in causes if cause] == [
        ("number", "n", "2"),
        ("size", "y.shape[0]", "4"),
    ]


def test_compile_time_by_line_adds_up(inductor: Report) -> None:
    """Code counts for the lines of its kernels, all else for the line of the function."""
    assert inductor.dynamo is not None
    seconds = inductor.dynamo.compile_seconds
    assert sum(line.seconds for line in seconds.by_line) == pytest.approx(seconds.total)
    assert [line.span.line for line in seconds.by_line[:1]] == [21]
    functions = {function.span.line for function in inductor.dynamo.functions}
    assert functions <= {line.span.line for line in seconds.by_line}


def test_unknown_facts_are_named(report: Report) -> None:
    for target in report.targets:
        unknown = {row.fact for row in target.origins if row.known == "unknown"}
        assert "times of kernels, compared with eager" in unknown
        assert target.verified is None
        assert all(kernel.time_us is None for kernel in target.kernels)


def test_the_report_is_plain_data(report: Report) -> None:
    assert loads(dumps(report)) == report


def test_one_target_by_name_or_id() -> None:
    trace = open_trace(LOGS / "net-aot_eager")
    assert [row.qualname for row in build_report(trace, "test", "infer").targets] == ["infer"]
    assert [row.qualname for row in build_report(trace, "test", "1/1").targets] == ["broken"]


def test_a_module_of_a_library_has_its_own_name_and_the_line_of_the_call(tmp_path: Path) -> None:
    """Dynamo compiles its wrapper `inner` in place of a `forward` that is in torch's own files."""
    folder = "/opt/python/lib/site-packages/torch"
    stack = [
        {"line": 7, "name": "<module>", "filename": 0, "loc": "step(x).sum().backward()"},
        {"line": 511, "name": "__call__", "filename": 1},
        {"line": 67, "name": "inner", "filename": 2},
    ]
    guards = (
        "| +- TYPE_MATCH: ___check_type_id(L['fn'], 941),"
        " type=<class 'torch.nn.modules.container.Sequential'>  # return fn(*args, **kwargs)"
    )
    graph = "class GraphModule(torch.nn.Module):\n    def forward(self):\n        return ()\n"
    text = (
        record("str", ["/home/u/train.py", 0])
        + record("str", [f"{folder}/_dynamo/eval_frame.py", 1])
        + record("str", [f"{folder}/_dynamo/external_utils.py", 2])
        + record("dynamo_start", {"stack": stack}, None, **compiled())
        + record("dynamo_output_graph", {"sizes": {}}, graph, **compiled())
        + record("dynamo_cpp_guards_str", {}, guards, **compiled())
    )
    (tmp_path / "a.log").write_text(text)
    report = build_report(open_trace(tmp_path / "a.log"), "test")
    (target,) = report.targets
    assert target.span is not None
    assert (target.qualname, target.span.file, target.span.line) == (
        "Sequential.forward",
        "/home/u/train.py",
        7,
    )
    assert report.dynamo is not None
    assert [function.qualname for function in report.dynamo.functions] == ["Sequential.forward"]
