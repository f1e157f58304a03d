"""The lines of a target's graphs in a workspace where the file is another's path and has changed."""

import shutil
from pathlib import Path

import pytest

from aotlens.model.report import Span
from aotlens.trace.build import build_report
from aotlens.trace.facts import CompilationFacts
from aotlens.trace.graphs.records import Graph, GraphNode, Line
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.source.source_lines import SourceLines, Sources, line_origins
from aotlens.trace.source.workspace import Workspace, parse_mapping

HERE = Path(__file__).parent
LOG = HERE / "logs" / "gpt-aot_eager"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The program with three more lines at the top, and one line changed."""
    text = (HERE / "programs" / "gpt.py").read_text()
    changed = text.replace("logits = self.head(x)", "logits = self.head(x) * 1.0")
    path = tmp_path / "src" / "gpt.py"
    path.parent.mkdir()
    path.write_text("#\n#\n#\n" + changed)
    return path.resolve()


def _text(span: Span) -> str:
    line = Path(span.file).read_text().splitlines()[span.line - 1].encode()
    return line[span.col : span.end_col].decode()


def test_each_span_is_on_the_expression_that_was_logged(checkout: Path) -> None:
    report = build_report(open_trace(LOG), "", None, Sources(Workspace(checkout.parent)))
    (target,) = report.targets
    assert target.qualname == "GPT.forward"
    assert target.span is not None
    assert _text(target.span).startswith("def forward(self, tokens")
    forward = target.stage("forward")
    assert forward is not None
    spans = {node.target: node.spans[0] for node in forward.nodes if node.spans}
    assert {span.file for span in spans.values()} == {str(checkout)}
    assert _text(spans["aten.embedding.default"]) == "self.tokens(tokens)"
    assert _text(spans["aten.gelu.default"]) == "nn.functional.gelu(self.up(self.norm2(x)))"
    assert _text(spans["aten.native_layer_norm.default"]) in ("self.norm1(x)", "self.norm2(x)")
    assert _text(spans["aten.add.Tensor"]) in ("x + self.down(hidden)", "x + self.attention(self.norm1(x))")
    assert _text(spans["aten.mm.default"]) == ""  # the line of `logits` has changed


def test_a_changed_line_is_said_to_be_unknown(checkout: Path) -> None:
    facts = CompilationFacts(open_trace(LOG).processes[0].compilations[0])
    lines = Sources(Workspace(checkout.parent)).for_target(facts.sets[0])
    assert {(origin.fact, origin.known) for origin in line_origins(lines)} == {
        ("8 lines of 9", "derived"),
        ("1 line of 9", "unknown"),
    }


def test_without_its_file_a_line_keeps_its_logged_path(tmp_path: Path) -> None:
    facts = CompilationFacts(open_trace(LOG).processes[0].compilations[0])
    lines = Sources(Workspace(tmp_path)).for_target(facts.sets[0])
    assert set(lines.states.values()) == {"missing"}
    first = next(iter(lines.states))
    assert lines(first) == Span(first.file, first.line, 0, first.line, 0)


def test_lines_of_a_cache_hit_are_the_current_ones_or_marked_stale(tmp_path: Path) -> None:
    file = tmp_path / "moved.py"
    file.write_text("#\ndef f(x):\n    return x.sin()\n")
    now = Line(str(file), 3, "f", "return x.sin()")
    old, gone = Line("/old/f.py", 2, "f", "return x.sin()"), Line("/old/f.py", 9, "f", "return x.exp()")

    def graph(*lines: Line, target: str) -> Graph:
        nodes = (
            GraphNode(f"n{i}", "call_function", target, (), "", "", line) for i, line in enumerate(lines)
        )
        return Graph("g", (), tuple(nodes), ())

    forward = graph(old, gone, target="aten.sin.default")
    captured = graph(now, target="Tensor.sin")
    lines = SourceLines(Workspace(tmp_path), captured, (forward,), is_cache_hit=True)
    assert lines.stale == (gone,)
    assert lines(old, forward.nodes[0]) == Span(str(file), 3, 11, 3, 18)
    assert [origin.fact for origin in line_origins(lines)] == ["1 stale line of 3"]


def test_a_mapping_leads_to_the_files(checkout: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.move(checkout.parent, elsewhere)
    workspace = Workspace(tmp_path / "empty", (parse_mapping(f"/home/ada/train={elsewhere}"),))
    report = build_report(open_trace(LOG), "", None, Sources(workspace))
    assert report.targets[0].span is not None
    assert report.targets[0].span.file == str((elsewhere / "gpt.py").resolve())


def test_a_default_device_hides_the_lines_of_graphs_but_not_of_kernels() -> None:
    """torch logs the mode's own frame for each call, and the user's with it only in the stacks of kernels."""
    report = build_report(open_trace(HERE / "logs" / "default_device-inductor"), "test")
    (target,) = report.targets
    origins = {origin.fact: origin for origin in target.origins}
    assert origins["lines"].known == "unknown"
    assert "default device" in origins["lines"].source
    spans = [span for kernel in target.kernels for span in kernel.spans]
    assert {span.line for span in spans} >= {17, 18}
    assert all(span.file.endswith("default_device.py") for span in spans)


def test_a_resume_function_is_named_after_the_line_of_its_break_here(tmp_path: Path) -> None:
    """The log has the number of the line only; its text is that of the graph break."""
    program = HERE / "programs" / "breaks.py"
    (tmp_path / "breaks.py").write_text(f"# one\n# two\n{program.read_text()}")
    trace = open_trace(HERE / "logs" / "breaks-aot_eager")
    here, moved = (
        [
            (target.qualname, target.span.line)
            for target in build_report(trace, "", None, Sources(Workspace(folder))).targets
            if target.span is not None and " after line " in target.qualname
        ]
        for folder in (program.parent, tmp_path)
    )
    assert here
    lower = [(name, int(name.rpartition(" ")[2]), line) for name, line in here]
    assert moved == [(f"{name.rpartition(' ')[0]} {number + 2}", line + 2) for name, number, line in lower]


def test_definitions_of_one_name_are_told_apart_in_a_file_that_has_changed(tmp_path: Path) -> None:
    """`net.py` has several functions `forward`; the log has no text of a definition."""
    program = HERE / "programs" / "net.py"
    (tmp_path / "net.py").write_text(f"# one\n# two\n{program.read_text()}")
    trace = open_trace(HERE / "logs" / "net-aot_eager")
    dynamo = build_report(trace, "", None, Sources(Workspace(tmp_path))).dynamo
    assert dynamo is not None
    assert dynamo.functions[0].qualname == "Net.forward"
    (named,) = build_report(trace, "", "Net.forward", Sources(Workspace(tmp_path))).targets
    assert named.qualname == "Net.forward"
