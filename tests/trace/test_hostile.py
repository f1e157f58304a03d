"""Logs that somebody wrote to do harm: none harms the process, the terminal, the page or the disk."""

import json
import os
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotlens.model.codec import dumps
from aotlens.model.report import Report
from aotlens.render.html.build import html_page
from aotlens.render.text.report import Shown, report_text
from aotlens.trace import listing
from aotlens.trace.build import Extras, build_report
from aotlens.trace.listing import Limits
from aotlens.trace.logs import scan
from aotlens.trace.logs.log_file import BLOCK_BYTES
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.logs.scan import RecordTable
from aotlens.trace.source.lines import whole_line
from tests.command import aotlens
from tests.trace.log_text import ARTIFACT, compiled, record

FULL_SIZE = pytest.mark.rotates("all")
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu"):
        l_x_ = L_x_
        # File: {file}:3 in f, code: {code}
        y: "f32[4][1]cpu" = l_x_.sin()
        return (y,)
"""


def log_of(file: str = "/home/u/net.py", code: str = "y = x.sin()", name: str = "f", number: int = 0) -> str:
    start = {"stack": [{"line": 2, "name": name, "filename": 1}]}
    graph = GRAPH.format(file=file, code=code)
    return (
        record("str", [file, 1])
        + record("dynamo_start", start, None, **compiled(number))
        + record("dynamo_output_graph", {"sizes": {}}, graph, **compiled(number))
    )


def report_of(folder: Path, text: str) -> Report:
    (folder / "a.log").write_text(text, errors="surrogatepass")
    return build_report(open_trace(folder / "a.log"), "test")


def everything(report: Report) -> str:
    return report_text(report, Shown(is_full=True)) + report_text(report) + dumps(report)


@pytest.mark.parametrize("size", [256 << 20, pytest.param(10 << 30, marks=FULL_SIZE)])
def test_a_huge_line_is_never_held(size: int) -> None:
    """The bytes are made as they are read."""
    block = b"x" * BLOCK_BYTES

    def blocks() -> Iterator[bytes]:
        yield simple.encode() + b'V1124 08:40:07.253000 7 torch/a.py:1] {"huge": {"a": "'
        for _ in range(size // len(block)):
            yield block
        yield b'"}}\n' + simple.encode()

    simple = record("dynamo_start", {"stack": []}, None, **compiled())
    table = RecordTable()
    tracemalloc.start()
    scan.scan(blocks(), table, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [table.kinds[row].name for row in table.kind_rows] == ["dynamo_start", "huge", "dynamo_start"]
    assert table.lengths[1] >= size
    assert peak < 100 << 20


@pytest.mark.rotates
def test_a_long_stretch_without_a_record_is_never_held() -> None:
    table = RecordTable()
    tracemalloc.start()
    scan.scan((b"x" * BLOCK_BYTES for _ in range(60)), table, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(table) == 0
    assert peak < 60 << 20


def written(folder: Path, count: int) -> Path:
    """Return a log of so many targets, written piece by piece."""
    with open(folder / "a.log", "w") as file:
        file.writelines(log_of(number=number) for number in range(count))
    return folder / "a.log"


@pytest.mark.rotates
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("count", [3_000, pytest.param(1_000_000, marks=FULL_SIZE)])
def test_many_targets_are_listed_and_few_are_read(tmp_path: Path, count: int) -> None:
    path = written(tmp_path, count)
    ended = aotlens("inspect", path)
    assert ended.code == 0, ended.err
    assert f"{path}::0/0 reads one" in ended.out
    assert f"and {count - 200 - 12:,} more (--full shows more)" in ended.out
    last = aotlens("inspect", f"{path}::{count - 1}/0", "--format", "json")
    assert [target["graph"]["frame"] for target in json.loads(last.out)["targets"]] == [count - 1]


def test_targets_beyond_the_limits_are_listed_with_line_and_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_LISTED", 4)
    trace = open_trace(written(tmp_path, 10))
    report = build_report(trace, "test", extras=Extras(limits=Limits(200, 0, reads_on=True)))
    log = report.log
    assert log is not None
    assert [target.graph.frame for target in report.targets if target.graph] == [0]
    assert [row.compile_id for row in log.listed] == ["1/0", "2/0", "3/0", "4/0"]
    assert log.listed_count == 9
    assert (log.listed[0].qualname, log.listed[0].mode) == ("f", "inference")
    assert log.listed[0].span is not None
    assert (log.listed[0].span.line, log.listed[0].bytes > len(GRAPH)) == (2, True)
    assert report.incomplete is None
    assert report.dynamo is not None
    assert sum(len(function.compilations) for function in report.dynamo.functions) == 10
    (named,) = build_report(trace, "test", "9/0", extras=Extras(limits=Limits(200, 0, reads_on=True))).targets
    assert named.graph is not None
    assert named.graph.frame == 9


def test_the_largest_targets_are_read_within_the_limit(tmp_path: Path) -> None:
    texts = [log_of(number=number, code="y = x.sin()" + number * "  ") for number in range(6)]
    (tmp_path / "a.log").write_text("".join(texts))
    trace = open_trace(tmp_path / "a.log")
    sizes = [summary.text_bytes for summary in listing.summaries(trace)]
    assert sizes == sorted(sizes)
    choice = listing.chosen(trace, None, Limits(200, sum(sizes[-2:])), whole_line)
    assert [summary.compilation.id for summary in choice.read] == ["4/0", "5/0"]
    assert [summary.compilation.id for summary in choice.listed] == ["0/0", "1/0", "2/0", "3/0"]


def test_the_rest_of_too_many_targets_is_said(tmp_path: Path) -> None:
    report = build_report(open_trace(written(tmp_path, 5)), "test", extras=Extras(limits=Limits(3)))
    assert len(report.targets) == 3
    assert report.incomplete is not None
    assert report.incomplete.startswith("3 of 5 targets are read, the largest")


@pytest.mark.rotates
def test_a_check_and_a_comparison_read_all_or_say_what_they_did_not(tmp_path: Path) -> None:
    path = written(tmp_path, 300)
    ended = aotlens("check", path)
    assert (ended.code, "no findings in 300 targets" in ended.err) == (0, True)
    with open(path, "a") as file:
        file.writelines(log_of(number=number) for number in range(300, 2_010))
    ended = aotlens("check", path)
    assert ended.code == 1
    assert "AL808" in ended.out
    assert "10 targets and the graph breaks and recompilations of 10 compilations" in ended.out
    named = aotlens("check", f"{path}::2009/0")
    assert (named.code, "in 1 target" in named.err) == (0, True)
    ended = aotlens("diff", path, path)
    assert ended.out == "f ×2000: no difference\n"
    assert ended.err.count("2,000 of 2,010 targets are read") == 2


@pytest.mark.parametrize("kinds", ["kind", "context"])
def test_tables_are_bounded(kinds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_KINDS", 10)
    monkeypatch.setattr(scan, "MAX_CONTEXTS", 10)
    table = RecordTable()
    names = (f"kind{index}" if kinds == "kind" else "kind" for index in range(500))
    text = "".join(record(name, {}, None, **compiled(index)) for index, name in enumerate(names))
    scan.scan([text.encode()], table, 0)
    assert len(table) == 500
    assert len(table.kinds) <= 10
    assert len(table.contexts) <= 11


def test_terminal_codes_in_names_are_not_printed(tmp_path: Path) -> None:
    code = "y = x.sin()\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
    report = report_of(tmp_path, log_of(code=code, file="/home/u/\x1b[31mnet.py", name="f\x1b[5m"))
    text = everything(report)
    assert not any(sign in text for sign in "\x1b\x07\x9b\u202e")
    assert "\\u001b" not in text


def test_half_a_surrogate_pair_does_not_stop_the_report(tmp_path: Path) -> None:
    start = json.dumps(
        {"dynamo_start": {"stack": [{"line": 2, "name": "f\ud800", "filename": 1}]}, **compiled()}
    )
    text = f"V1124 08:40:07.253000 7 torch/a.py:1] {start}\n" + log_of(number=1)
    everything(report_of(tmp_path, text)).encode()


def test_markup_in_code_is_escaped_on_the_page(tmp_path: Path) -> None:
    report = report_of(
        tmp_path, log_of(code="<script>alert(1)</script>", name="<img src=x onerror=alert(2)>")
    )
    page = html_page(report, "a.log")
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page


@pytest.mark.parametrize("file", ["/etc/passwd", "../../../../etc/passwd", "/proc/self/environ"])
def test_a_file_that_is_no_source_is_never_read(tmp_path: Path, file: str) -> None:
    report = report_of(tmp_path, log_of(file=file))
    assert "root:" not in everything(report)
    assert all(not os.path.isabs(target.span.file) for target in report.targets if target.span)


def test_nothing_is_written_where_a_log_names_a_file(tmp_path: Path) -> None:
    text = log_of() + record(
        "inductor_output_code", {"filename": str(tmp_path / "x.py")}, "import os\n", **compiled()
    )
    text += record("dump_file", {"name": str(tmp_path / "y.py")}, "text", **compiled())
    report_of(tmp_path, text)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log"]


@pytest.mark.parametrize(
    "kind",
    [
        "dynamo_output_graph",
        "aot_joint_graph",
        "aot_forward_graph",
        "aot_backward_graph",
        "aot_inference_graph",
        "inductor_output_code",
        "inductor_post_grad_graph",
        "aot_forward_graph_fw_metadata",
        "dynamo_cpp_guards_str",
        "dynamo_graph_break_reason",
        "recompile_reasons",
        "chromium_event",
        "inductor_provenance_tracking_kernel_stack_traces",
        "runtime_wrapper_orchestration",
    ],
)
def test_a_text_of_any_kind_may_be_nonsense(tmp_path: Path, kind: str) -> None:
    nonsense = (
        "[" * 5000 + '\n\tdef forward(\n\t\treturn (\n{\'a\': (((1,\n"name": "x", "ts": 1e999 "ph": "B"'
    )
    text = (
        log_of() + record(kind, ARTIFACT, nonsense, **compiled()) + record(kind, ARTIFACT, "", **compiled())
    )
    assert report_of(tmp_path, text).targets


@pytest.mark.parametrize(
    "kind",
    ["describe_tensor", "describe_source", "create_symbol", "compilation_metrics", "dynamo_start", "str"],
)
@pytest.mark.parametrize(
    "value", [None, [], {}, 7, "text", {"source": 1, "id": {}, "val": "9" * 5000, "stack": 3}]
)
def test_a_value_of_any_kind_may_have_another_type(tmp_path: Path, kind: str, value: object) -> None:
    text = log_of() + record(kind, value, None, **compiled())
    assert report_of(tmp_path, text).targets


def test_deeply_nested_json_is_no_crash(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    head = 'V1124 08:40:07.253000 7 torch/a.py:1] {"describe_source": '
    line = f'{head}{deep}, "frame_id": 0, "frame_compile_id": 0}}\n'
    assert report_of(tmp_path, log_of() + line).targets
    assert sys.getrecursionlimit() < 100_000
