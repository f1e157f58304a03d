"""What two traces of edited code differ in, on real traces."""

import linecache
from pathlib import Path
from typing import Any

import pytest

from aotlens.compare.alignment import aligned
from aotlens.compare.difference import NodeChange, TargetChange, report_change, target_change
from aotlens.model.report import Report, Target
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.render.markdown import difference_markdown
from aotlens.render.text.difference import difference_lines
from aotlens.render.text.layout import to_text

SOURCE = """\
import torch

def step(x, w, v):
    h = torch.relu(x @ w)
    for _ in range(3):
        h = torch.tanh(h @ v)
    return (h * 2.0).sum()
"""


class Traces:
    """Traces edits of one file, as a user makes them."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "m.py"
        self._known: dict[str, Target] = {}

    def of(self, source: str) -> Target:
        if source not in self._known:
            self._known[source] = self._traced(source)
        return self._known[source]

    def changed(self, *edits: tuple[str, str]) -> TargetChange:
        new = SOURCE
        for old_text, new_text in edits:
            assert old_text in new
            new = new.replace(old_text, new_text)
        return target_change(self.of(SOURCE), self.of(new))

    def _traced(self, source: str) -> Target:
        import torch

        self._file.write_text(source)
        linecache.checkcache()
        names: dict[str, Any] = {}
        exec(compile(source, str(self._file), "exec"), names)
        arguments = tuple(torch.ones(8, 8, requires_grad=True) for _ in range(3))
        return compile_direct(names["step"], arguments, {}, CompileOptions(backend="eager")).target()


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Traces:
    return Traces(tmp_path_factory.mktemp("difference"))


def told(nodes: tuple[NodeChange, ...]) -> list[tuple[str, str, str]]:
    return [(node.kind, node.phase, node.node.target) for node in nodes]


@pytest.mark.parametrize(
    "edits",
    [
        [("    h = torch.relu(x @ w)", "    # why\n\n    h = torch.relu(x @ w)  # here")],
        [("h", "hidden"), ("torchidden", "torch"), ("tanhidden", "tanh")],
        [("step(x, w, v)", "step(x, weight, v)"), ("x @ w", "x @ weight")],
        [("    h = torch.relu(x @ w)", "    h = torch.relu(\n        x @ w\n    )")],
    ],
    ids=["comment", "variable renamed", "argument renamed", "line broken"],
)
def test_what_does_the_same_has_no_difference(traces: Traces, edits: list[tuple[str, str]]) -> None:
    change = traces.changed(*edits)
    assert change.nodes == ()
    assert change.before == change.after
    if len(edits) == 1 and "#" in edits[0][1]:
        assert change.is_empty


def test_an_operator_more_is_that_operator_and_its_gradient(traces: Traces) -> None:
    change = traces.changed(("x @ w)\n", "x @ w)\n    h = torch.exp(h)\n"))
    own = tuple(node for node in change.nodes if not node.what.startswith("recomputed"))
    assert told(own) == [
        ("added", "forward", "aten.exp.default"),
        ("added", "backward", "aten.mul.Tensor"),
    ]
    (line,) = (line for line in change.lines if line.nodes)
    assert line.before is None
    assert line.after is not None
    assert (line.after.number, line.after.text) == (5, "h = torch.exp(h)")
    assert line.change.forward_nodes == 1


def test_an_operator_less_is_told_at_its_old_line(traces: Traces) -> None:
    with_exp = SOURCE.replace("x @ w)\n", "x @ w)\n    h = torch.exp(h)\n")
    change = target_change(traces.of(with_exp), traces.of(SOURCE))
    assert {kind for kind, _, _ in told(change.nodes)} == {"removed"}
    (line,) = (line for line in change.lines if line.nodes)
    assert line.after is None


def test_another_constant_is_a_change(traces: Traces) -> None:
    change = traces.changed(("2.0", "3.0"))
    assert [node.what for node in change.nodes if node.phase == "forward"] == [
        "`aten_mul_Tensor(·, 2.0)` became `aten_mul_Tensor(·, 3.0)`"
    ]


def test_swapped_operands_are_a_change(traces: Traces) -> None:
    change = traces.changed(("x @ w", "w @ x"))
    assert ("changed", "forward", "aten.mm.default") in told(change.nodes)


def test_a_layer_more_leaves_the_others_in_place(traces: Traces) -> None:
    change = traces.changed(("range(3)", "range(4)"))
    assert {kind for kind, _, _ in told(change.nodes)} == {"added"}
    assert [target for _, phase, target in told(change.nodes) if phase == "forward"] == [
        "aten.mm.default",
        "aten.tanh.default",
    ]
    (line,) = change.lines
    assert line.change.saved_bytes == 8 * 8 * 4


def test_as_text_and_as_markdown(traces: Traces) -> None:
    old = Report("", "", "", (traces.of(SOURCE),))
    new = Report("", "", "", (traces.of(SOURCE.replace("range(3)", "range(4)")),))
    change = report_change(old, new)
    text = to_text(difference_lines(change, 100))
    assert "  saved           1.0 KiB → 1.2 KiB  +256 B" in text
    assert "+ forward tanh_3 = aten.tanh.default  f32[8, 8]" in text
    markdown = difference_markdown(change, ())
    assert "| saved | 1.0 KiB | 1.2 KiB | +256 B |" in markdown
    assert difference_markdown(report_change(old, old), ()).endswith("No difference.\n")


def test_targets_that_only_one_report_has(traces: Traces) -> None:
    target = traces.of(SOURCE)
    one, none = Report("", "", "", (target,)), Report("", "", "")
    change = report_change(none, one)
    assert (change.added, change.removed, change.is_empty) == ((target,), (), False)
    assert report_change(one, none).removed == (target,)


@pytest.mark.parametrize(
    ("old", "new", "pairs"),
    [
        ("abcabba", "cbabac", 4),
        ("", "abc", 0),
        ("aaaa", "aa", 2),
        ("xaby", "zabw", 2),
    ],
)
def test_the_longest_common_subsequence(old: str, new: str, pairs: int) -> None:
    found = aligned(old, new)
    assert len(found) == pairs
    assert all(old[one] == new[other] for one, other in found)
    assert found == sorted(found)
    assert [other for _, other in found] == sorted({other for _, other in found})
