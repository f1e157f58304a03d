"""The graphs of the sample report: places in the model's source, nodes and stages.

Places are found by text, so the model and the sample may be edited together.
"""

from dataclasses import replace
from math import prod
from pathlib import Path

from aotlens.model import Site, Span, Stage, StageNode, Tensor

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
        reason="copies the new value to `steps`",
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
    replace(
        node("sum_1", "aten.sum.dim_IntList", "tangents_1", "f32[16]", (DOWN,)), reason="gradient of bias"
    ),
    node("mm", "aten.mm.default", "tangents_1 down_weight", "f32[32, 64]", (DOWN,)),
    node("mm_1", "aten.mm.default", "tangents_1 mul_1", "f32[16, 64]", (DOWN,)),
    node("mul_2", "aten.mul.Tensor", "mm gelu", "f32[32, 64]", ("hidden * hidden.sigmoid()",)),
    node("mul_3", "aten.mul.Tensor", "mm sigmoid", "f32[32, 64]", ("hidden * hidden.sigmoid()",)),
    node(
        "sigmoid_backward",
        "aten.sigmoid_backward.default",
        "mul_2 sigmoid",
        "f32[32, 64]",
        ("hidden.sigmoid()",),
    ),
    node(
        "add_2", "aten.add.Tensor", "tangents_2 mul_3 sigmoid_backward", "f32[32, 64]", ("hidden.sigmoid()",)
    ),
    node(
        "gelu_backward",
        "aten.gelu_backward.default",
        "add_2 addmm",
        "f32[32, 64]",
        ("functional.gelu(self.up(x))",),
    ),
    replace(
        node("sum_2", "aten.sum.dim_IntList", "gelu_backward", "f32[64]", (UP,)), reason="gradient of bias"
    ),
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


def training_stages(extra: int) -> tuple[Stage, ...]:
    forward = (*FORWARD_NODES, *_load("fw", extra, "addmm"), output_node("mul", "add", "gelu", "addmm"))
    backward = (
        *SAVED_PLACEHOLDERS,
*RECOMPUTED_NODES,
 *BACKWARD_NODES,
 *_load("bw", extra, "mm"),
 output_node(*GRADIENTS),
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


def _load(prefix: str, count: int, head: str) -> tuple[StageNode, ...]:
    """A chain of `count` calls whose spans walk over the lines of the model."""
    places = [span(text) for text in (UP, "hidden.sigmoid()", DOWN, "x + self.down(gated)")]
    shape = tensor("f32[32, 64]")
    chain: list[StageNode] = []
    for number in range(count):
        name, before = f"{prefix}_{number}", f"{prefix}_{number - 1}" if number else head
        place = (places[number % len(places)],)
        chain.append(StageNode(name, "call_function", "aten.relu.default", (before,), shape, place, (name,)))
    return tuple(chain)
