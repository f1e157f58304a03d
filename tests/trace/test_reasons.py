"""Our solver on a graph that torch partitioned."""

from pathlib import Path

import pytest

from aotlens.model.report import Partition
from aotlens.render.text.report import Shown, report_text
from aotlens.trace.build import Extras, build_report
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.partition_reasons import with_reasons
from tests.trace.log_text import compiled, record

LOGS = Path(__file__).parent / "logs"


def partition_of(log: Path, only: str | None = None) -> Partition:
    report = build_report(open_trace(log), "test", only, extras=Extras(with_reasons))
    partition = report.targets[0].partition
    assert partition is not None
    return partition


def test_reasons_stand_where_both_save_a_value() -> None:
    partition = partition_of(LOGS / "net-inductor", "0/0")
    saved = {value.node: value for value in partition.saved}
    assert (saved["addmm"].code, saved["gt"].code) == ("costly", "reduction")
    assert saved["rsqrt"].certificate is not None
    assert saved["primals_5"].code == "parameter"


def test_what_only_torch_saves_is_said_to_be_torchs() -> None:
    partition = partition_of(LOGS / "net-inductor", "0/0")
    assert partition.own is not None
    saved = {value.node: value for value in partition.saved}
    for name in partition.own.only_torchs:
        assert "chosen by torch's solver" in saved[name].reason
        assert saved[name].certificate is None
    assert partition.own.saved_bytes < partition.saved_bytes == 5888
    assert set(partition.own.same) == {"getitem_1", "rsqrt", "addmm", "getitem_3", "rsqrt_1", "addmm_2", "gt"}


def test_the_frontier_is_that_of_the_logged_graph() -> None:
    partition = partition_of(LOGS / "net-inductor", "0/0")
    sizes = [point.saved_bytes for point in partition.frontier]
    assert sizes == sorted(sizes)
    assert partition.default_bytes == 5888


def test_the_text_compares_both_choices() -> None:
    report = build_report(open_trace(LOGS / "net-inductor"), "test", "0/0", extras=Extras(with_reasons))
    assert "our solver would save 2.8 KiB and recompute 4.2 kFLOP" in report_text(report, Shown(is_full=True))


JOINT = """class inner_f(torch.nn.Module):
    def forward(self, primals, tangents):
        primals_1: "{type}"  # PlainAOTInput(idx=0)
        tangents_1: "{type}"  # TangentAOTInput(output=PlainAOTOutput(idx=0))
        primals_1, tangents_1, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)
        # File: /home/u/net.py:3 in f, code: y = x.sin()
        sin: "{type}" = torch.ops.{operator}(primals_1)
        cos: "{type}" = torch.ops.aten.cos.default(primals_1);  primals_1 = None
        mul: "{type}" = torch.ops.aten.mul.Tensor(tangents_1, cos);  tangents_1 = cos = None
        return pytree.tree_unflatten([
            sin,  # PlainAOTOutput(idx=0)
            mul,  # GradAOTOutput(grad_of=PlainAOTInput(idx=0))
        ], self._out_spec)
"""
FORWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "{type}",  # PlainAOTInput(idx=0)
    ):
        sin: "{type}" = torch.ops.aten.sin.default(primals_1)
        return (
            sin,  # PlainAOTOutput(idx=0)
            primals_1,  # SavedForBackwardsAOTOutput(idx=0)
        )
"""
BACKWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "{type}",  # PlainAOTInput(idx=0)
        tangents_1: "{type}",  # TangentAOTInput(output=PlainAOTOutput(idx=0))
    ):
        cos: "{type}" = torch.ops.aten.cos.default(primals_1);  primals_1 = None
        mul: "{type}" = torch.ops.aten.mul.Tensor(tangents_1, cos);  tangents_1 = cos = None
        return (
            mul,  # GradAOTOutput(grad_of=PlainAOTInput(idx=0))
        )
"""


def logged(folder: Path, type_: str, operator: str) -> Path:
    texts = {"aot_joint_graph": JOINT, "aot_forward_graph": FORWARD, "aot_backward_graph": BACKWARD}
    log = folder / "a.log"
    log.write_text(
        record("dynamo_start", {"stack": []}, None, **compiled())
        + "".join(
            record(kind, {}, text.format(type=type_, operator=operator), **compiled())
            for kind, text in texts.items()
        )
    )
    return log


def test_a_graph_that_we_know_is_solved(tmp_path: Path) -> None:
    partition = partition_of(logged(tmp_path, "f32[4][1]cuda:0", "aten.sin.default"))
    assert (partition.own_note, partition.saved[0].code) == ("", "input")


@pytest.mark.parametrize(
    ("type_", "operator", "note"),
    [
        ("f32[4][1]cpu", "mylib.secret.default", "`mylib.secret.default` is not an operator"),
        ("f32[4][1]cpu", "load_library.x.default", "`load_library.x.default` is not an operator"),
        ("f32[4][1]cpu", "aten.__class__.default", "is not an operator"),
        ("f32[u0][1]cpu", "aten.sin.default", "has no value in the log"),
        ("DTensor(f32[4])", "aten.sin.default", "a value of type `DTensor(f32[4])`"),
    ],
)
def test_what_our_solver_cannot_be_shown_is_said(
    tmp_path: Path, type_: str, operator: str, note: str
) -> None:
    partition = partition_of(logged(tmp_path, type_, operator))
    assert note in partition.own_note
    assert partition.own is None
