"""A hand-made report, rich enough to show every kind of row, for the tests of every front end.

Its spans point into `sample_model.py` beside this file and are found by text, so both may be edited together.
"""

from dataclasses import replace
from math import prod
from pathlib import Path

from aotlens.report import (
    Base,
    Diagnostic,
    Edit,
    Fix,
    FrontierPoint,
    Input,
    Kernel,
    LiveValue,
    Memory,
    Output,
    Partition,
    RecomputedValue,
    Related,
    Report,
    SavedValue,
    Site,
    Span,
    Stage,
    StageNode,
    Target,
    Tensor,
    Use,
    Variable,
    Wrapper,
    WrapperStep,
)

MODEL = Path(__file__).with_name("sample_model.py")
"""The user's file that the sample report is about."""

SIZES = {"f32": 4, "bf16": 2, "i64": 8, "b8": 1}


def span(text: str, inside: str | None = None) -> Span:
    """The place of `text` in the model's source, searched from the start of `inside` when given."""
    for number, line in enumerate(MODEL.read_text(encoding="utf-8").splitlines(), 1):
        if (inside or text) not in line:
            continue
        start = line.index(text, line.index(inside) if inside else 0)
        col = len(line[:start].encode())
        return Span(str(MODEL), number, col, number, col + len(text.encode()))
    raise LookupError(f"{text!r} does not stand in {MODEL.name}; edit the sample with the model")


def site(text: str, op: str | None = None) -> Site:
    """The site of an expression of the model."""
    return Site(span(text), text, op)


def tensor(short: str, *, grad: bool = False) -> Tensor:
    """A contiguous CPU tensor from its short form: `f32[8, 16]`."""
    dtype, _, sizes = short.rstrip("]").partition("[")
    shape = tuple(int(size) for size in sizes.split(",") if size.strip())
    stride = tuple(prod(shape[position + 1 :]) for position in range(len(shape)))
    return Tensor(dtype, shape, stride, "cpu", grad, prod(shape) * SIZES[dtype])


def node(
    name: str, target: str, inputs: str = "", result: str | None = None, at: tuple[str, ...] = ()
) -> StageNode:
    """One call in a stage; `inputs` are names separated by blanks, `at` are texts of the model."""
    spans = tuple(span(text) for text in at)
    origin = () if name.startswith("tangents") else (name,)
    shown = tensor(result) if result else None
    return StageNode(name, "call_function", target, tuple(inputs.split()), shown, spans, origin)


def placeholder(name: str, slot: str, result: str, reason: str = "") -> StageNode:
    """One input of a stage."""
    where = (span("def forward"),)
    return StageNode(name, "placeholder", slot, (), tensor(result), where, (name,), reason)


def output_node(*names: str) -> StageNode:
    """The results of a stage."""
    return StageNode("output", "output", "output", names, None, (span("return parts"),), ("output",))


UP, DOWN = "self.up(x)", "self.down(gated)"

INPUT_NODES = (
    placeholder("up_weight", "Parameter up.weight", "f32[64, 16]"),
    placeholder("up_bias", "Parameter up.bias", "f32[64]"),
    placeholder("down_weight", "Parameter down.weight", "f32[16, 64]"),
    placeholder("down_bias", "Parameter down.bias", "f32[16]"),
    placeholder("steps", "Buffer steps", "f32[]"),
    placeholder("x", "UserInput x", "f32[32, 16]"),
    placeholder("cache", "UserInput cache", "f32[32, 16]"),
)

CAPTURED_NODES = (
    *INPUT_NODES,
    node("add_", "aten.add_.Tensor", "steps", "f32[]", ("self.steps += 1",)),
    node("mul_", "aten.mul_.Tensor", "cache", "f32[32, 16]", ("cache.mul_(0.9)",)),
    node("addmm", "aten.addmm.default", "up_bias x up_weight", "f32[32, 64]", (UP,)),
    node("gelu", "aten.gelu.default", "addmm", "f32[32, 64]", ("functional.gelu(self.up(x))",)),
    node("sigmoid", "aten.sigmoid.default", "gelu", "f32[32, 64]", ("hidden.sigmoid()",)),
    node("mul_1", "aten.mul.Tensor", "gelu sigmoid", "f32[32, 64]", ("hidden * hidden.sigmoid()",)),
    node("view", "aten.view.default", "gelu", "f32[2048]", ("hidden.view(-1)",)),
    node("addmm_1", "aten.addmm.default", "down_bias mul_1 down_weight", "f32[32, 16]", (DOWN,)),
    node("add", "aten.add.Tensor", "x addmm_1", "f32[32, 16]", ("x + self.down(gated)",)),
    node("select", "aten.select.int", "mul_", "f32[16]", ("cache[0]",)),
    output_node("add", "view", "select"),
)

FORWARD_NODES = (
    *INPUT_NODES,
    node("add_1", "aten.add.Tensor", "steps", "f32[]", ("self.steps += 1",)),
    replace(
        node("copy_", "aten.copy_.default", "steps add_1", "f32[]", ("self.steps += 1",)),
        from_=("add_1",),
        reason="writes the new value of `steps` back",
    ),
    node("mul", "aten.mul.Tensor", "cache", "f32[32, 16]", ("cache.mul_(0.9)",)),
    node("addmm", "aten.addmm.default", "up_bias x up_weight", "f32[32, 64]", (UP,)),
    node("gelu", "aten.gelu.default", "addmm", "f32[32, 64]", ("functional.gelu(self.up(x))",)),
    node("sigmoid", "aten.sigmoid.default", "gelu", "f32[32, 64]", ("hidden.sigmoid()",)),
    node("mul_1", "aten.mul.Tensor", "gelu sigmoid", "f32[32, 64]", ("hidden * hidden.sigmoid()",)),
    node("addmm_1", "aten.addmm.default", "down_bias mul_1 down_weight", "f32[32, 16]", (DOWN,)),
    node("add", "aten.add.Tensor", "x addmm_1", "f32[32, 16]", ("x + self.down(gated)",)),
)

BACKWARD_NODES = (
    placeholder("tangents_1", "Tangent out[0]", "f32[32, 16]"),
    placeholder("tangents_2", "Tangent base of out[1]", "f32[32, 64]"),
    replace(node("sum_1", "aten.sum.dim_IntList", "tangents_1", "f32[16]", (DOWN,)), reason="gradient of bias"),
    node("mm", "aten.mm.default", "tangents_1 down_weight", "f32[32, 64]", (DOWN,)),
    node("mm_1", "aten.mm.default", "tangents_1 mul_1", "f32[16, 64]", (DOWN,)),
    node("mul_2", "aten.mul.Tensor", "mm gelu", "f32[32, 64]", ("hidden * hidden.sigmoid()",)),
    node("mul_3", "aten.mul.Tensor", "mm sigmoid", "f32[32, 64]", ("hidden * hidden.sigmoid()",)),
    node("sigmoid_backward", "aten.sigmoid_backward.default", "mul_2 sigmoid", "f32[32, 64]", ("hidden.sigmoid()",)),
    node("add_2", "aten.add.Tensor", "tangents_2 mul_3 sigmoid_backward", "f32[32, 64]", ("hidden.sigmoid()",)),
    node(
        "gelu_backward", "aten.gelu_backward.default", "add_2 addmm", "f32[32, 64]", ("functional.gelu(self.up(x))",)
    ),
    replace(node("sum_2", "aten.sum.dim_IntList", "gelu_backward", "f32[64]", (UP,)), reason="gradient of bias"),
    node("mm_2", "aten.mm.default", "gelu_backward x", "f32[64, 16]", (UP,)),
)

SAVED_PLACEHOLDERS = (
    placeholder("x", "SavedForBackward x", "f32[32, 16]"),
    placeholder("down_weight", "SavedForBackward down.weight", "f32[16, 64]"),
    placeholder("addmm", "SavedForBackward addmm", "f32[32, 64]"),
    placeholder("gelu", "SavedForBackward hidden", "f32[32, 64]"),
)

RECOMPUTED_NODES = (
    replace(
        node("sigmoid", "aten.sigmoid.default", "gelu", "f32[32, 64]", ("hidden.sigmoid()",)),
        reason="computed again: cheaper than keeping 8.0 KiB",
    ),
    replace(
        node("mul_1", "aten.mul.Tensor", "gelu sigmoid", "f32[32, 64]", ("hidden * hidden.sigmoid()",)),
        reason="computed again: cheaper than keeping 8.0 KiB",
    ),
)

GRADIENTS = ("mm_2", "sum_2", "mm_1", "sum_1")


def sample_report(nodes: int = 0) -> Report:
    """A training and an inference target; `nodes` more in each of joint, forward and backward for load tests."""
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
        stages=_training_stages(extra_nodes),
        partition=_partition(extra_nodes // 20),
        wrapper=_wrapper(),
        kernels=_kernels(),
        memory=_memory(),
        variables=_variables(),
        timings_ms={
            "capture": 41.5, "analysis": 12.25, "joint": 60.0, "partition": 3.5, "codegen": 820.0, "runtime": 1.5,
        },  # fmt: skip
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
    text = "def {0}(x, head):\n    # logits = x @ head\n    mm = aten.mm.default(x, head)  # f32[32, 10]\n    return (mm,)\n"
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
                0, "out", tensor("f32[32, 10]"), "non_alias", None, "a tensor of its own", (site("logits.softmax(-1)"),)
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
            4, "steps", "Buffer", "steps", tensor("f32[]"), "mutated_in_graph", mutates_data=True,
            reason="needs no gradient, so the graph itself writes it", sites=(site("self.steps += 1", "aten.add_.Tensor"),),
        ),  # fmt: skip
        Input(5, "x", "UserInput", None, tensor("f32[32, 16]"), reason="read only"),
        Input(
            6, "cache", "UserInput", None, tensor("f32[32, 16]", grad=True), "mutated_out_graph", mutates_data=True,
            reason="carries a gradient, so autograd must see the write: the wrapper copies the new value back",
            sites=(site("cache.mul_(0.9)", "aten.mul_.Tensor"),), requires_grad=True, is_leaf=False,
        ),  # fmt: skip
    )


def _training_outputs() -> tuple[Output, ...]:
    return (
        Output(
            0, "out[0]", tensor("f32[32, 16]", grad=True), "non_alias", None, "a tensor of its own",
            (site("x + self.down(gated)", "aten.add.Tensor"),), requires_grad=True,
        ),  # fmt: skip
        Output(
            1, "out[1]", tensor("f32[2048]", grad=True), "alias_of_intermediate_save_as_output",
            Base("intermediate", 0), "a view of `hidden`, made again after the graph so that autograd knows its base",
            (site("hidden.view(-1)", "aten.view.default"),), requires_grad=True,
        ),  # fmt: skip
        Output(
            2, "out[2]", tensor("f32[16]", grad=True), "alias_of_input", Base("input", 6),
            "a view of argument `cache`, made again from it", (site("cache[0]", "aten.select.int"),), requires_grad=True,
        ),  # fmt: skip
    )


def _training_stages(extra: int) -> tuple[Stage, ...]:
    forward = (*FORWARD_NODES, *_load("fw", extra, "addmm"), output_node("mul", "add", "gelu", "addmm"))
    backward = (
        *SAVED_PLACEHOLDERS, *RECOMPUTED_NODES, *BACKWARD_NODES, *_load("bw", extra, "mm"), output_node(*GRADIENTS),
    )  # fmt: skip
    joint = (
        *FORWARD_NODES, *_load("fw", extra, "addmm"), *BACKWARD_NODES, *_load("bw", extra, "mm"),
        output_node("mul", "add", "gelu", *GRADIENTS),
    )  # fmt: skip
    functional = (*FORWARD_NODES, output_node("mul", "add", "gelu"))
    return (
        _stage("captured", None, CAPTURED_NODES),
        _stage("functional", "captured", functional),
        _stage("joint", "functional", joint),
        _stage("forward", "joint", forward),
        _stage("backward", "joint", backward),
    )


def _stage(name: str, parent: str | None, nodes: tuple[StageNode, ...]) -> Stage:
    """The stage with its text, one line a node."""
    arguments = ", ".join(entry.name for entry in nodes if entry.op == "placeholder")
    lines = [f"def {name}({arguments}):"]
    for entry in nodes:
        shape = f"  # {entry.tensor.short()}" if entry.tensor else ""
        if entry.op == "call_function":
            lines.append(f"    {entry.name} = {entry.target}({', '.join(entry.inputs)}){shape}")
        elif entry.op == "output":
            lines.append(f"    return ({', '.join(entry.inputs)},)")
    return Stage(name, parent, nodes, "\n".join(lines) + "\n")


def _load(prefix: str, count: int, first: str) -> tuple[StageNode, ...]:
    """A chain of `count` calls whose spans walk over the lines of the model."""
    places = [span(text) for text in (UP, "hidden.sigmoid()", DOWN, "x + self.down(gated)")]
    shape = tensor("f32[32, 64]")
    chain = []
    for number in range(count):
        name = f"{prefix}_{number}"
        place = (places[number % len(places)],)
        chain.append(StageNode(name, "call_function", "aten.relu.default", (first,), shape, place, (name,)))
        first = name
    return tuple(chain)


def _partition(extra_saved: int) -> Partition:
    hidden = tensor("f32[32, 64]")
    gelu_at, up_at, gate_at = span("functional.gelu(self.up(x))"), span(UP), span("hidden * hidden.sigmoid()")
    saved = (
        SavedValue(
            "addmm", hidden, 8192, "new", "slow to compute again (matrix product)", up_at,
            (Use("gelu_backward", gelu_at),), donated=True,
        ),  # fmt: skip
        SavedValue(
            "gelu", hidden, 0, "output", "kept alive by an output", gelu_at,
            (Use("mul_2", gate_at), Use("sigmoid", span("hidden.sigmoid()"))), name="hidden",
        ),  # fmt: skip
        SavedValue(
            "down_weight", tensor("f32[16, 64]", grad=True), 0, "parameter", "a parameter, alive anyway", span(DOWN),
            (Use("mm", span(DOWN)),), name="down.weight",
        ),  # fmt: skip
        SavedValue(
            "x", tensor("f32[32, 16]"), 0, "input", "an argument, alive anyway", up_at, (Use("mm_2", up_at),), name="x"
        ),
    )
    more = tuple(
        SavedValue(f"fw_{number * 20}", hidden, 8192, "new", "the cheapest cut", up_at, (Use(f"bw_{number}", up_at),))
        for number in range(extra_saved)
    )
    recomputed = (
        RecomputedValue("sigmoid", 8192, 8192, "cheap to compute again", span("hidden.sigmoid()")),
        RecomputedValue("mul_1", 8192, 2048, "cheap to compute again", gate_at),
    )
    total = 8192 * (1 + extra_saved)
    frontier = (FrontierPoint(24576, 0), FrontierPoint(16384, 2048), FrontierPoint(8192, 10240))
    return Partition("min-cut", (*saved, *more), recomputed, total, frontier)


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
            "copy mutated inputs back", True, "`cache` carries a gradient", (17, 17), 2048, (site("cache.mul_(0.9)"),)
        ),
        WrapperStep(
            "make output views again", True, "two outputs are views", (19, 21), 0,
            (site("hidden.view(-1)"), site("cache[0]")),
        ),  # fmt: skip
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
            "cpp_fused_mul_sigmoid_0", "forward", "cpu", source, ("sigmoid", "mul_1"), at, 8192, 8192, 10240, time_us=3.5
        ),
    )


def _memory() -> Memory:
    curve = (("addmm", 8192), ("gelu", 16384), ("sigmoid", 24576), ("mul_1", 32768), ("addmm_1", 18432))
    live = (
        LiveValue("addmm", 8192, span(UP)),
        LiveValue("gelu", 8192, span("functional.gelu(self.up(x))")),
        LiveValue("sigmoid", 8192, span("hidden.sigmoid()")),
        LiveValue("mul_1", 8192, span("hidden * hidden.sigmoid()")),
    )
    return Memory(32768, curve, live)


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
            "AL101", "warning", "`cache` is changed in place and carries a gradient: 2.0 KiB are copied on every call",
            cache, (Related(span("cache[0]"), "this output is a view of it"),), (fix, note),
        ),  # fmt: skip
        Diagnostic(
            "AL301", "information", "`self.up(x)` keeps 8.0 KiB for the backward, all of the 8.0 KiB saved here",
            span(UP),
            (Related(span("functional.gelu(self.up(x))"), "the backward of this reads it"),),
        ),  # fmt: skip
    )
