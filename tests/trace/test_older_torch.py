"""Logs of torch before 2.8: arguments on one line, no slots, no wrapper, `null` for what is absent."""

from pathlib import Path

from aotlens.model.report import Target
from aotlens.trace.build import Extras, build_report
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.partition_reasons import with_reasons
from tests.trace.log_text import ARTIFACT, record

JOINT = """class joint_helper(torch.nn.Module):
    def forward(self, primals, tangents):
        primals_1: "f32[4][1]cpu"; primals_2: "f32[4][1]cpu"; tangents_1: "f32[4][1]cpu";

        primals_1, primals_2, tangents_1, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)
         # File: /home/u/net.py:3 in f, code: return (x * w).exp()
        mul: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(primals_1, primals_2)
        exp: "f32[4][1]cpu" = torch.ops.aten.exp.default(mul);  mul = None
        mul_1: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(tangents_1, exp);  tangents_1 = None
        mul_2: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(mul_1, primals_1);  mul_1 = primals_1 = None
        return pytree.tree_unflatten([exp, None, mul_2], self._out_spec)
"""
FORWARD = """class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[4][1]cpu", primals_2: "f32[4][1]cpu"):
         # File: /home/u/net.py:3 in f, code: return (x * w).exp()
        mul: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(primals_1, primals_2);  primals_2 = None
        exp: "f32[4][1]cpu" = torch.ops.aten.exp.default(mul)
        return [exp, primals_1, mul]
"""
BACKWARD = """class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[4][1]cpu", mul: "f32[4][1]cpu", tangents_1: "f32[4][1]cpu"):
         # File: /home/u/net.py:3 in f, code: return (x * w).exp()
        exp: "f32[4][1]cpu" = torch.ops.aten.exp.default(mul);  mul = None
        mul_1: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(tangents_1, exp);  tangents_1 = exp = None
        mul_2: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(mul_1, primals_1);  mul_1 = primals_1 = None
        return [None, mul_2]
"""


def old_target(folder: Path) -> Target:
    context = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    stack = [{"line": 2, "name": "f", "filename": 0}]
    text = (
        record("str", ["/home/u/net.py", 0])
        + record("dynamo_start", {"stack": stack}, None, **context)
        + record("aot_joint_graph", {}, JOINT, **context)
        + record("aot_forward_graph", {}, FORWARD, **context)
        + record("aot_backward_graph", {}, BACKWARD, **context)
        + record("recompile_reasons", ARTIFACT, "[\"0/0: L['n'] == 2\"]", **context)
    ).replace('"frame_id": 0', '"rank": null, "compiled_autograd_id": null, "frame_id": 0')
    (folder / "a.log").write_text(text)
    (target,) = build_report(open_trace(folder / "a.log"), "test", extras=Extras(with_reasons)).targets
    return target


def test_saved_values_are_what_the_backward_takes_by_name(tmp_path: Path) -> None:
    partition = old_target(tmp_path).partition
    assert partition is not None
    assert [(row.node, row.bytes, row.owner) for row in partition.saved] == [
        ("primals_1", 0, "input"),
        ("mul", 16, "new"),
    ]
    assert [row.node for row in partition.recomputed] == ["exp"]
    assert partition.saved[1].span is not None
    assert partition.own_note


def test_what_an_older_torch_does_not_log_is_unknown(tmp_path: Path) -> None:
    target = old_target(tmp_path)
    unknown = {row.fact for row in target.origins if row.known == "unknown"}
    assert {"mutations and aliases", "wrapper", "why a value is saved"} <= unknown
    assert [row.name for row in target.inputs] == ["primals_1", "primals_2"]


def test_a_list_of_reasons_is_read(tmp_path: Path) -> None:
    old_target(tmp_path)
    report = build_report(open_trace(tmp_path / "a.log"), "test")
    assert report.dynamo is not None
    (cause,) = [row.cause for row in report.dynamo.recompilations]
    assert cause is not None
    assert (cause.name, cause.old, cause.against) == ("n", "2", "0/0")
