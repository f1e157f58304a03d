"""Logged graphs with higher-order operators, DTensors and symbolic numbers become programs for our solver."""

from pathlib import Path

import pytest

from aotlens.model.partition import Partition
from aotlens.trace.build import Extras, build_report
from aotlens.trace.graphs.records import base_slot
from aotlens.trace.graphs.tensor_text import float_value, size_value
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.partition_reasons import with_reasons
from tests.trace.log_text import compiled, record

HEAD = """class inner_f(torch.nn.Module):
    def forward(self, primals, tangents):
        primals_1: "f32[4, 8][8, 1]cpu"  # {slot}
        tangents_1: "f32[4, 8][8, 1]cpu"  # {tangent}
        primals_1, tangents_1, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)
"""
TAIL = """
        return pytree.tree_unflatten([
            {result},  # {out}
            mul,  # {gradient}
        ], self._out_spec)
"""
PLAIN = {
    "slot": "PlainAOTInput(idx=0)",
    "tangent": "TangentAOTInput(output=PlainAOTOutput(idx=0))",
    "out": "PlainAOTOutput(idx=0)",
    "gradient": "GradAOTOutput(grad_of=PlainAOTInput(idx=0))",
}
COND = """        sum_1: "f32[][]cpu" = torch.ops.aten.sum.default(primals_1)
        gt: "b8[][]cpu" = torch.ops.aten.gt.Scalar(sum_1, 0);  sum_1 = None
        true_graph_0 = self.true_graph_0
        false_graph_0 = self.false_graph_0
        cond = torch.ops.higher_order.cond(gt, true_graph_0, false_graph_0, (primals_1,))
        getitem: "f32[4, 8][8, 1]cpu" = cond[0];  cond = None
        exp: "f32[4, 8][8, 1]cpu" = torch.ops.aten.exp.default(getitem)
        mul: "f32[4, 8][8, 1]cpu" = torch.ops.aten.mul.Tensor(tangents_1, exp)"""
BODY = """
    class {name}(torch.nn.Module):
        def forward(self, arg0_1: "f32[4, 8][8, 1]cpu"):
            {op}: "f32[4, 8][8, 1]cpu" = torch.ops.aten.{op}.default(arg0_1)
            return ({op},)
"""
BODIES = BODY.format(name="true_graph_0", op="sin") + BODY.format(name="false_graph_0", op="cos")
SCALED = """        item: "Sym(zf0)" = torch.ops.aten._local_scalar_dense.default(primals_1)
        mul_1: "Sym(2.0*zf0)" = item * 2
        exp: "f32[4, 8][8, 1]cpu" = torch.ops.aten.mul.Tensor(primals_1, mul_1)
        mul: "f32[4, 8][8, 1]cpu" = torch.ops.aten.mul.Tensor(tangents_1, exp)"""
SINE = """        exp: "f32[4, 8][8, 1]cpu" = torch.ops.aten.exp.default(primals_1)
        mul: "f32[4, 8][8, 1]cpu" = torch.ops.aten.mul.Tensor(tangents_1, exp)"""
FORWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[4, 8][8, 1]cpu",  # {slot}
    ):
        exp: "f32[4, 8][8, 1]cpu" = torch.ops.aten.exp.default(primals_1)
        return (
            exp,  # {out}
            exp,  # SavedForBackwardsAOTOutput(idx=0)
        )
"""
BACKWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        exp: "f32[4, 8][8, 1]cpu",
        tangents_1: "f32[4, 8][8, 1]cpu",  # {tangent}
    ):
        mul: "f32[4, 8][8, 1]cpu" = torch.ops.aten.mul.Tensor(tangents_1, exp)
        return (
            mul,  # {gradient}
        )
"""


def solved(folder: Path, body: str, after: str = "", slots: dict[str, str] | None = None) -> Partition:
    """Return what our solver makes of a joint graph with that body, and with these classes after it."""
    words = {**PLAIN, **(slots or {}), "result": "exp"}
    texts = {
        "aot_joint_graph": f"{HEAD}{body}{TAIL}".format(**words) + after,
        "aot_forward_graph": FORWARD.format(**words),
        "aot_backward_graph": BACKWARD.format(**words),
    }
    log = folder / "a.log"
    log.write_text(
        record("dynamo_start", {"stack": []}, None, **compiled())
        + record("create_symbol", {"symbol": "zf0", "val": "1.5"}, None, **compiled())
        + "".join(record(kind, {}, text, **compiled()) for kind, text in texts.items())
    )
    partition = build_report(open_trace(log), "test", extras=Extras(with_reasons)).targets[0].partition
    assert partition is not None
    return partition


def test_bodies_of_a_higher_order_operator_are_programs(tmp_path: Path) -> None:
    partition = solved(tmp_path, COND, BODIES)
    assert partition.own_note == ""
    assert partition.own is not None


@pytest.mark.parametrize(
    ("body", "after", "note"),
    [
        (COND, "", "`true_graph_0` is `true_graph_0`, and the log has no text of it"),
        (COND, BODIES + BODIES, "has two bodies of that name"),
        (COND, BODIES.replace("sin", "unheard_of"), "`aten.unheard_of.default` is not an operator"),
        (COND.replace(".cond(", ".secret("), BODIES, "`higher_order.secret` is not an operator"),
        (COND.replace(".cond(", ".__class__("), BODIES, "`higher_order.__class__` is not an operator"),
        (COND, BODIES.replace("arg0_1)", "[x for x in arg0_1])"), "was not understood"),
    ],
)
def test_a_body_that_is_not_known_is_named(tmp_path: Path, body: str, after: str, note: str) -> None:
    partition = solved(tmp_path, body, after)
    assert note in partition.own_note
    assert partition.own is None


def test_symbolic_floats_and_their_arithmetic_have_values(tmp_path: Path) -> None:
    assert solved(tmp_path, SCALED).own is not None
    assert "`zf1` has no value in the log" in solved(tmp_path, SCALED.replace("zf0", "zf1")).own_note


def test_the_local_part_of_a_dtensor_is_its_users_input(tmp_path: Path) -> None:
    slots = {
        key: f"SubclassGetAttrAOT{'Output' if key in ('out', 'gradient') else 'Input'}"
        f"(base={slot}, attr='_local_tensor')"
        for key, slot in PLAIN.items()
    }
    plain, local = solved(tmp_path, SINE), solved(tmp_path, SINE, slots=slots)
    assert local.own_note == ""
    assert [row.reason for row in local.saved] == [row.reason for row in plain.saved]
    assert local.own == plain.own


def test_the_slot_of_an_inner_tensor() -> None:
    inner = "SubclassGetAttrAOTInput(base=ParamAOTInput(idx=3), attr='_local_tensor')"
    nested = f"SubclassGetAttrAOTInput(base={inner}, attr='elem')"
    assert base_slot("PlainAOTInput(idx=0)") == ("PlainAOTInput(idx=0)", ())
    assert base_slot(inner) == ("ParamAOTInput(idx=3)", ("_local_tensor",))
    assert base_slot(nested) == ("ParamAOTInput(idx=3)", ("_local_tensor", "elem"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("128*Max(1, s0 - 1)", 512),
        ("Max(1, s0 - 1)**2", 16),
        ("FloorDiv(s0, 2) + Mod(s0, 3) + Min(s0, 4)", 8),
        ("2**1000000", None),
        ("print(1, 2)", None),
        ("Max(1)", None),
        ("FloorDiv(1, 0)", None),
    ],
)
def test_sizes_with_functions(text: str, expected: int | None) -> None:
    assert size_value(text, {"s0": 5}) == expected


def test_float_texts() -> None:
    assert float_value("2.0*zf0 - 1", {"zf0": 1.5}) == 2.0
    assert float_value("1/zf0", {"zf0": 0.0}) is None
    assert float_value("abs(zf0)", {"zf0": 1.0}) is None
