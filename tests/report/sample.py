"""A hand-made report, rich enough to show every kind of row, for the tests of every front end.

Its spans point into `sample_model.py` beside this file.
"""

from dataclasses import replace

from aotlens.model import (
    Base,
    Diagnostic,
    Edit,
    Fix,
    Input,
    Kernel,
    LiveValue,
    Memory,
    Output,
    Related,
    Report,
    Stage,
    StageNode,
    Target,
    Variable,
    Wrapper,
    WrapperStep,
)
from tests.report.sample_graph import MODEL, UP, node, site, span, tensor, training_stages
from tests.report.sample_partition import sample_partition

__all__ = [
    "MODEL",
    "inference_target",
    "sample_report",
    "site",
    "span",
    "tensor",
    "training_target",
]


def sample_report(nodes: int = 0) -> Report:
    """A training and an inference target; `nodes` more calls in forward and in backward for load tests."""
    return Report(
        torch="2.13.0",
        python="3.11.2",
        command="aotlens inspect tests/report/sample_model.py",
        targets=(training_target(nodes), inference_target()),
    )


def training_target(extra_nodes: int = 0) -> Target:
    """`Block`, with a mutated buffer, a mutated argument and two outputs that are views."""
    return Target(
        name="Block",
        qualname="Block",
        frontend="dynamo",
        mode="training",
        span=span("class Block(nn.Module):"),
        inputs=_training_inputs(),
        outputs=_training_outputs(),
        stages=training_stages(extra_nodes),
        partition=sample_partition(extra_nodes // 20),
        wrapper=_wrapper(),
        kernels=_kernels(),
        memory=_memory(),
        variables=_variables(),
        timings_ms={
            "capture": 41.5,
            "analysis": 12.25,
            "joint": 60.0,
            "partition": 3.5,
            "codegen": 820.0,
            "runtime": 1.5,
        },
        diagnostics=_diagnostics(),
    )


def inference_target() -> Target:
    """`score`, which has no gradient, no mutation and no alias."""
    at, softmax = ("x @ head",), ("logits.softmax(-1)",)
    where = (span("def score"),)
    inputs = (
        StageNode("x", "placeholder", "UserInput x", (), tensor("f32[32, 16]"), where, ("x",)),
        StageNode("head", "placeholder", "UserInput head", (), tensor("f32[16, 10]"), where, ("head",)),
    )
    calls = (
        node("mm", "aten.mm.default", "x head", "f32[32, 10]", at),
        node("_softmax", "aten._softmax.default", "mm", "f32[32, 10]", softmax),
        StageNode("output", "output", "output", ("_softmax",), None, (span("return logits"),), ("output",)),
    )
    text = """\
def {0}(x, head):
    # logits = x @ head
    mm = aten.mm.default(x, head)  # f32[32, 10]
    # return logits.softmax(-1)
    _softmax = aten._softmax.default(mm, -1, False)  # f32[32, 10]
    return (_softmax,)
"""
    parents = {"captured": None, "functional": "captured", "inference": "functional"}
    return Target(
        name="score",
        qualname="score",
        frontend="direct",
        mode="inference",
        span=span("def score"),
        inputs=(
            Input(0, "x", "UserInput", None, tensor("f32[32, 16]"), reason="read only"),
            Input(1, "head", "UserInput", None, tensor("f32[16, 10]"), reason="read only"),
        ),
        outputs=(
            Output(
                0,
                "out",
                tensor("f32[32, 10]"),
                "non_alias",
                None,
                "a tensor of its own",
                (site("logits.softmax(-1)"),),
            ),
        ),
        stages=tuple(
            Stage(name, parent, (*inputs, *calls), text.format(name)) for name, parent in parents.items()
        ),
        wrapper=Wrapper("def call(x, head):\n    return inference(x, head)[0]\n", ()),
        variables=(Variable(span("logits", "logits = x @ head"), "logits", tensor("f32[32, 10]")),),
        timings_ms={"capture": 9.0, "analysis": 2.0, "joint": 4.0, "codegen": 0.5, "runtime": 0.5},
    )


def _training_inputs() -> tuple[Input, ...]:
    def parameter(index: int, fqn: str, short: str) -> Input:
        shown = tensor(short, grad=True)
        return Input(index, fqn, "Parameter", fqn, shown, reason="a parameter, read only", requires_grad=True)

    return (
        parameter(0, "up.weight", "f32[64, 16]"),
        parameter(1, "up.bias", "f32[64]"),
        parameter(2, "down.weight", "f32[16, 64]"),
        parameter(3, "down.bias", "f32[16]"),
        Input(
            4,
            "steps",
            "Buffer",
            "steps",
            tensor("f32[]"),
            "mutated_in_graph",
            mutates_data=True,
            reason="needs no gradient, so the graph itself writes it",
            sites=(site("self.steps += 1", "aten.add_.Tensor"),),
        ),
        Input(5, "x", "UserInput", None, tensor("f32[32, 16]"), reason="read only"),
        Input(
            6,
            "cache",
            "UserInput",
            None,
            tensor("f32[32, 16]", grad=True),
            "mutated_out_graph",
            mutates_data=True,
            reason="carries a gradient, so autograd must see the write: the wrapper copies it back",
            sites=(site("cache.mul_(0.9)", "aten.mul_.Tensor"),),
            requires_grad=True,
            is_leaf=False,
        ),
    )


def _training_outputs() -> tuple[Output, ...]:
    return (
        Output(
            0,
            "out[0]",
            tensor("f32[32, 16]", grad=True),
            "non_alias",
            None,
            "a tensor of its own",
            (site("x + self.down(gated)", "aten.add.Tensor"),),
            requires_grad=True,
        ),
        Output(
            1,
            "out[1]",
            tensor("f32[2048]", grad=True),
            "alias_of_intermediate_save_as_output",
            Base("intermediate", 0),
            "a view of `hidden`, made again after the graph so that autograd knows its base",
            (site("hidden.view(-1)", "aten.view.default"),),
            requires_grad=True,
        ),
        Output(
            2,
            "out[2]",
            tensor("f32[16]", grad=True),
            "alias_of_input",
            Base("input", 6),
            "a view of argument `cache`, made again from it",
            (site("cache[0]", "aten.select.int"),),
            requires_grad=True,
        ),
    )


WRAPPER_SOURCE = '''\
import torch


class Block(torch.autograd.Function):
    """Joins the forward and the backward graph of `Block`."""

    @staticmethod
    def forward(ctx, *primals):
        mul, add, gelu, addmm = forward(*primals)
        ctx.save_for_backward(primals[5], primals[2], addmm, gelu)
        return mul, add, gelu


def call(up_weight, up_bias, down_weight, down_bias, steps, x, cache):
    mul, add, gelu = Block.apply(up_weight, up_bias, down_weight, down_bias, steps, x, cache)
    # cache.mul_(0.9)  sample_model.py:21
    cache.copy_(mul)
    # hidden.view(-1)  sample_model.py:24
    out_1 = gelu.view(-1)
    # cache[0]  sample_model.py:25
    out_2 = cache.select(0, 0)
    return add, out_1, out_2
'''


def _wrapper() -> Wrapper:
    steps = (
        WrapperStep(
            "copy mutated inputs back",
            True,
            "`cache` carries a gradient",
            (17, 17),
            2048,
            (site("cache.mul_(0.9)"),),
        ),
        WrapperStep(
            "make output views again",
            True,
            "two outputs are views",
            (19, 21),
            0,
            (site("hidden.view(-1)"), site("cache[0]")),
        ),
        WrapperStep("join forward and backward", True, "parameters need gradients", (4, 11)),
        WrapperStep("drop duplicate arguments", False, "no argument is passed twice", None),
        WrapperStep("restore autocast", False, "autocast was off while tracing", None),
    )
    return Wrapper(WRAPPER_SOURCE, steps)


def _kernels() -> tuple[Kernel, ...]:
    at = (span("hidden.sigmoid()"), span("hidden * hidden.sigmoid()"))
    source = 'extern "C" void cpp_fused_mul_sigmoid_0(const float* in0, float* out0) { /* ... */ }\n'
    return (
        Kernel(
            "cpp_fused_mul_sigmoid_0",
            "forward",
            "cpu",
            source,
            ("sigmoid", "mul_1"),
            at,
            8192,
            8192,
            10240,
            time_us=3.5,
        ),
    )


def _memory() -> Memory:
    curve = (("addmm", 8192), ("gelu", 16384), ("sigmoid", 24576), ("mul_1", 32768), ("addmm_1", 18432))
    live = (
        LiveValue("addmm", 8192, span(UP), "saved", last="mul_3", last_in="backward", last_span=span(UP)),
        LiveValue("gelu", 8192, span("functional.gelu(self.up(x))"), "result", "hidden"),
        LiveValue("sigmoid", 8192, span("hidden.sigmoid()"), last="mul_1", last_in="forward"),
        LiveValue(
            "mul_1",
            8192,
            span("hidden * hidden.sigmoid()"),
            "saved",
            "gated",
            last="mm_1",
            last_in="backward",
        ),
    )
    return Memory(32768, curve, live, "mul_1", "forward", span("hidden * hidden.sigmoid()"), 5, 18432)


def _variables() -> tuple[Variable, ...]:
    hidden = tensor("f32[32, 64]", grad=True)
    return (
        Variable(span("hidden", "hidden = functional"), "hidden", hidden),
        Variable(span("gated", "gated = hidden"), "gated", hidden),
    )


def _diagnostics() -> tuple[Diagnostic, ...]:
    cache = span("cache.mul_(0.9)")
    end = replace(cache, col=cache.end_col)
    fix = Fix("Return the new value instead", (Edit(cache, "cache = cache * 0.9"),))
    note = Fix("Add a note", (Edit(end, "  # copies 2.0 KiB"),))
    return (
        Diagnostic(
            "AL101",
            "warning",
            "`cache` is changed in place and carries a gradient: 2.0 KiB are copied on every call",
            cache,
            (Related(span("cache[0]"), "this output is a view of it"),),
            (fix, note),
        ),
        Diagnostic(
            "AL301",
            "information",
            "`self.up(x)` saves 8.0 KiB for the backward, all of the 8.0 KiB saved here",
            span(UP),
            (Related(span("functional.gelu(self.up(x))"), "the backward of this reads it"),),
        ),
    )
