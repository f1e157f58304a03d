"""What a hover says first of an expression: its source, its type, its cost."""

from dataclasses import replace

import pytest

from aotlens.model import Partition, Report, SavedValue, Site, Span, Stage, StageNode, Target
from aotlens.model.report import Wrapper, WrapperStep
from lsp_server.index import build
from lsp_server.translate import expression
from lsp_server.translate.expression import expression_text
from tests.report.sample import tensor

NORM, MAX, USE = (Span("model.py", line, 8, line, 20) for line in (1, 2, 3))


def call(name: str, target: str, inputs: tuple[str, ...], shape: str | None, span: Span) -> StageNode:
    return StageNode(name, "call_function", target, inputs, tensor(shape) if shape else None, (span,))


FORWARD = (
    call("native_layer_norm", "aten.native_layer_norm.default", ("x",), None, NORM),
    call("getitem", "getitem[0]", ("native_layer_norm",), "f32[4, 8]", NORM),
    call("getitem_1", "getitem[1]", ("native_layer_norm",), "f32[4, 1]", NORM),
    call("max_1", "aten.max.dim", ("getitem",), None, MAX),
    call("getitem_2", "getitem[0]", ("max_1",), "f32[4]", MAX),
    call("getitem_3", "getitem[1]", ("max_1",), "i64[4]", MAX),
    call("mul", "aten.mul.Tensor", ("getitem_2", "getitem_3"), "f32[4]", USE),
)


SAVED = tuple(
    SavedValue(f"wide_{layer}", tensor("f32[4, 8]"), 1 << 20, "new", "slow to recompute", NORM)
    for layer in range(3)
)


def training() -> Target:
    stages = (Stage("forward", "joint", FORWARD, ""),)
    partition = Partition("min-cut", SAVED, (), 3 << 20)
    return Target("f", "f", "direct", "training", None, stages=stages, partition=partition)


def text_at(target: Target, span: Span, source: str) -> str:
    report = Report("2.13.0", "3.11", "inspect model.py", (target,), ())
    index = build(report, "model.py", ("", "", ""), lambda name: name)
    return expression_text(next(spot for spot in index.spots if spot.span == span), source)


def headline(target: Target, span: Span, source: str) -> str:
    return text_at(target, span, source).partition("\n")[0]


def test_the_type_is_that_of_the_expression_and_not_of_the_first_or_last_operator() -> None:
    norm = "`norm(x)` · `f32[4, 8]` · saves 3.0 MiB · `aten.native_layer_norm`"
    assert headline(training(), NORM, "norm(x)") == norm
    assert headline(training(), MAX, "y.max(1)") == "`y.max(1)` · (`f32[4]`, `i64[4]`) · `aten.max`"


def in_layers(count: int, odd: bool = False) -> Target:
    """The same two operators in each layer; the first one has another operator where it is odd."""
    nodes: list[StageNode] = []
    for layer in range(count):
        more = [call("sin", "aten.sin.default", ("x",), "f32[2]", NORM)] if odd and not layer else []
        mm = call(f"mm_{layer}", "aten.mm.default", ("x",), "f32[4, 8]", NORM)
        unbind = call(f"unbind_{layer}", "aten.unbind.int", (mm.name,), None, NORM)
        parts = [call(f"part_{layer}_{n}", f"getitem[{n}]", (unbind.name,), "f32[8]", NORM) for n in (0, 1)]
        use = call(f"add_{layer}", "aten.add.Tensor", tuple(part.name for part in parts), "f32[8]", USE)
        nodes += [replace(node, layer=f"blocks.{layer}") for node in (*more, mm, unbind, *parts, use)]
    end = call(
        "end", "aten.cat.default", tuple(node.name for node in nodes if node.spans == (USE,)), "f32[8]", MAX
    )
    return replace(training(), stages=(Stage("forward", "joint", (*nodes, end), ""),))


def in_a_loop() -> Target:
    """The target of `in_layers`, without layers."""
    target = in_layers(3)
    nodes = tuple(replace(node, layer=None) for node in target.stages[0].nodes)
    return replace(target, stages=(replace(target.stages[0], nodes=nodes),))


@pytest.mark.parametrize(
    "target", [in_layers(3), in_layers(3, odd=True), in_a_loop()], ids=["layers", "odd", "loop"]
)
def test_the_type_of_an_expression_that_runs_several_times_is_that_of_one_run(target: Target) -> None:
    assert headline(target, NORM, "f(x).unbind()").startswith("`f(x).unbind()` · (`f32[8]`, `f32[8]`) · ")
    assert headline(target, USE, "a + b").startswith("`a + b` · `f32[8]` · ")


def test_a_long_expression_is_cut_in_its_middle() -> None:
    first = headline(training(), NORM, "norm(" + "x + " * 30 + "x)").partition(" · ")[0]
    assert len(first) == 63
    assert first.startswith("`norm(x + ")
    assert first.endswith(" x + x)`")


def test_values_of_equal_layers_are_counted_with_their_total() -> None:
    rows = [line for line in text_at(training(), NORM, "norm(x)").splitlines() if "wide" in line]
    assert rows == ["- `wide_0` ×3 (3.0 MiB in all) `f32[4, 8]`, 1.0 MiB; slow to recompute"]


def test_fewer_rows_where_a_popup_would_be_too_tall_and_the_others_are_counted() -> None:
    # Three kinds of six rows each and a fourth would be taller than a popup; of three rows each they are not.
    steps = tuple(WrapperStep(f"step_{n}", True, "runs", None, 0, (Site(USE, "f(x)"),)) for n in range(9))
    nodes = tuple(call(f"op_{n}", f"aten.op_{n}.default", (), "f32[4]", USE) for n in range(9))
    saved = tuple(SavedValue(f"v_{n}", tensor("f32[4]"), 1 << n, "new", f"why {n}", USE) for n in range(9))
    stages = (Stage("forward", "joint", nodes, ""), Stage("backward", "joint", nodes, ""))
    partition = Partition("min-cut", saved, (), 0)
    target = Target("f", "f", "direct", "training", None, stages=stages, partition=partition)
    shown = text_at(replace(target, wrapper=Wrapper("", steps)), USE, "f(x)").splitlines()
    assert [line for line in shown if line.startswith("- …")] == ["- … 6 more"] * 3
    assert sum(line.startswith("- `v_") for line in shown) == 3


def test_the_text_of_an_expression_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report("2.13.0", "3.11", "inspect model.py", (training(),), ())
    spot = build(report, "model.py", ("", "", ""), lambda name: name).spots[0]
    first = expression_text(spot, "norm(x)")
    monkeypatch.delattr(expression, "_sections")
    assert expression_text(spot, "norm(x)") == first
