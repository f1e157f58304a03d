"""Graphs are rebuilt from their text, and what is no plain expression is refused, not run."""

from pathlib import Path

import pytest

from aotlens.trace.graphs.tensor_text import size_value, tensor_of
from aotlens.trace.graphs.text import parse_graph

FORWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[8, 16][16, 1]cpu",  # PlainAOTInput(idx=0)
        primals_2: "Sym(s77)",  # PlainAOTInput(idx=1)
    ):
        # File: /home/u/net.py:12 in forward, code: y = x.sin() * n
        sin: "f32[8, 16][16, 1]cpu" = torch.ops.aten.sin.default(primals_1)
        var_mean = torch.ops.aten.var_mean.correction(sin, [1], correction = 0, keepdim = True);  sin = None
        getitem: "f32[8, 1][1, 1]cpu" = var_mean[0];  var_mean = None

        # No stacktrace found for following nodes
        copy_: "f32[8, 16][16, 1]cpu" = torch.ops.aten.copy_.default(primals_1, getitem);  copy_ = None
        return (
            getitem,  # PlainAOTOutput(idx=0)
            primals_1,  # SavedForBackwardsAOTOutput(idx=0)
            None,  # None
        )
"""


def test_nodes_edges_types_lines_and_slots() -> None:
    graph = parse_graph(FORWARD)
    assert [(item.name, item.slot) for item in graph.arguments][:1] == [("primals_1", "PlainAOTInput(idx=0)")]
    assert [(item.name, item.target, item.inputs) for item in graph.nodes] == [
        ("sin", "aten.sin.default", ("primals_1",)),
        ("var_mean", "aten.var_mean.correction", ("sin",)),
        ("getitem", "getitem[0]", ("var_mean",)),
        ("copy_", "aten.copy_.default", ("primals_1", "getitem")),
    ]
    assert graph.nodes[0].type == "f32[8, 16][16, 1]cpu"
    assert graph.nodes[0].line is not None
    assert (graph.nodes[0].line.line, graph.nodes[0].line.code) == (12, "y = x.sin() * n")
    assert graph.nodes[3].line is None
    assert [item.name for item in graph.results] == ["getitem", "primals_1", "None"]
    assert graph.unparsed_lines == ()


def test_dynamos_graph_renames_its_arguments() -> None:
    graph = parse_graph("""class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu", L_n_: "Sym(s1)"):
        l_x_ = L_x_
        # File: a.py:3 in f, code: y = x * n
        y: "f32[4][1]cpu" = l_x_ * L_n_;  l_x_ = None
        z: "f32[4][1]cpu" = y.view(-1)
        return (y, z)
""")
    assert [(item.name, item.target, item.inputs) for item in graph.nodes] == [
        ("y", "mul", ("L_x_", "L_n_")),
        ("z", "Tensor.view", ("y",)),
    ]
    assert [item.name for item in graph.results] == ["y", "z"]


def test_bodies_of_higher_order_operators_are_subgraphs() -> None:
    graph = parse_graph("""class GraphModule(torch.nn.Module):
    def forward(self, a: "f32[4][1]cpu"):
        true_graph_0 = self.true_graph_0
        cond = torch.ops.higher_order.cond(a, true_graph_0, true_graph_0, (a,));  true_graph_0 = None
        return (cond,)

    class true_graph_0(torch.nn.Module):
        def forward(self, b: "f32[4][1]cpu"):
            sin: "f32[4][1]cpu" = torch.ops.aten.sin.default(b);  b = None
            return (sin,)
""")
    assert (graph.nodes[0].op, graph.nodes[1].inputs) == ("get_attr", ("a", "true_graph_0"))
    assert [(item.name, len(item.nodes)) for item in graph.subgraphs] == [("true_graph_0", 1)]


@pytest.mark.parametrize(
    "expression",
    [
        "(lambda: __import__('os').system('touch owned'))()",
        "[x for x in ().__class__.__bases__]",
        "(a := 1)",
        "f'{open(1)}'",
        "yield_(a) if a else a",
        "(" * 5000 + ")" * 5000,
        "a(\0)",
        "a b",
    ],
)
def test_what_is_no_plain_expression_is_refused(expression: str, tmp_path: Path) -> None:
    text = f'class G(torch.nn.Module):\n    def forward(self, a: "f32[4][1]cpu"):\n        b = {expression}\n'
    graph = parse_graph(f"{text}        c = torch.ops.aten.sin.default(a)\n        return (c,)\n")
    assert [node.name for node in graph.nodes] == ["c"]
    assert len(graph.unparsed_lines) == 1


def test_a_call_is_recorded_and_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    head = "class G(torch.nn.Module):\n    def forward(self):\n"
    assert (
        parse_graph(f"{head}        b = open('owned', 'w')\n        return (b,)\n").nodes[0].target == "open"
    )
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("f32[8, 16][16, 1]cuda:0", ("f32", (8, 16), "cuda:0", 512)),
        ("bf16[s77, 4][4, 1]cpu", ("bf16", ("s77", 4), "cpu", 48)),
        ("b8[2*s77][1]cpu", ("b8", ("2*s77",), "cpu", 12)),
        ("f8e4m3fn[3][1]cpu", ("f8e4m3fn", (3,), "cpu", 3)),
        ("i64[][]cpu", ("i64", (), "cpu", 8)),
        ("f32[u0][1]cpu", ("f32", ("u0",), "cpu", None)),
    ],
)
def test_tensors_of_printed_types(type_: str, expected: object) -> None:
    tensor = tensor_of(type_, {"s77": 6})
    assert tensor is not None
    assert (tensor.dtype, tensor.shape, tensor.device, tensor.bytes) == expected


def test_a_size_is_arithmetic_and_nothing_else() -> None:
    assert size_value("(s0 + 1)//2", {"s0": 7}) == 4
    assert size_value("9**9**9", {}) is None
    assert size_value("__import__('os')", {}) is None
    assert size_value("1//0", {}) is None
