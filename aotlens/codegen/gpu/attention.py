"""Attention as a GPU computes it: the CPU's fused operator becomes the one that torch's selector would take.

Invariant: forward and backward choose the same operator, and what the CUDA one keeps besides (the state of
its random numbers) goes from the one to the other.
"""

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx

from aotlens.capture.operators import aten
from aotlens.capture.recorder import Call
from aotlens.codegen.gpu.attention_choice import HALF, WIDEST_HEAD
from aotlens.errors import placed
from aotlens.model.report import Span

FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
FLEX_OPTIONS = 6
"""The position of the kernel's options among the arguments of `flex_attention`."""


NAME = "scaled_dot_product_attention"
KIND = f"{NAME} on a GPU takes the {{kind}} kernel"
KINDS = {
    aten._scaled_dot_product_flash_attention.default: "flash",
    aten._scaled_dot_product_efficient_attention.default: "memory-efficient",
}
CHOSEN_STEPS = "is computed in its steps, since torch has no fused kernel for it on this GPU: {why}"

chosen_steps: dict[Span | None, str] = {}
"""By place, why an attention is taken apart on the GPU too; filled while targets are recorded for one."""

IN_STEPS = (
    "is shown in its steps, as a CPU computes it with dropout and in a few other cases; a GPU takes one flash"
    " or memory-efficient kernel, unless the script or the mask forbids both"
)


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention of the forward, as it was put for a GPU."""

    is_flash: bool
    random_state: tuple[fx.Node, fx.Node]
    """Two more results of the CUDA operator, which its backward reads."""
    log_sum: fx.Node
    """The log-sum-exp of the rows, which the CUDA operator gives in sizes of its own."""


def to_cuda_attention(module: fx.GraphModule, known: dict[str, Attention]) -> list[str]:
    """Exchange the operators; `known` gains the forward's attentions, by the name of their log-sum-exp.

    Returns what was assumed.
    """
    assumed = []
    for node in list(module.graph.nodes):
        if node.target is FORWARD:
            assumed.append(_forward(module.graph, node, known))
        elif node.target is BACKWARD:
            _backward(module.graph, node, known)
    _prepare_flex(module)
    if known:
        for node in module.graph.find_nodes(op="call_function", target=aten.view.default):
            node.target = aten.reshape.default  # a CUDA operator's result may lie otherwise
    return assumed


def attentions_recorded(calls: Iterable[Call]) -> Iterator[str]:
    """What each line's attention is on the GPU, where that was decided when it was recorded; and what is
    assumed of one that was recorded in its steps: only there torch takes this softmax."""
    told: dict[str, None] = {}
    for func, *_, origin in calls:
        if func in KINDS:
            told[KIND.format(kind=KINDS[func])] = None
        elif func is aten._safe_softmax.default:
            span = origin.place.innermost
            why = chosen_steps.get(span)
            told[f"{placed(NAME, span)}, {IN_STEPS if why is None else CHOSEN_STEPS.format(why=why)}"] = None
    yield from told


def _prepare_flex(module: fx.GraphModule) -> None:
    """What Inductor wants of FlexAttention, and a recording on a CPU has otherwise."""
    for node in module.graph.nodes:
        name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
        if name == "flex_attention" and _gives_log_sum(node):
            options = {**node.args[FLEX_OPTIONS], "OUTPUT_LOGSUMEXP": True}  # left out on a CPU
            node.args = (*node.args[:FLEX_OPTIONS], options, *node.args[FLEX_OPTIONS + 1 :])


def _gives_log_sum(node: fx.Node) -> bool:
    return any(user.target is operator.getitem and user.args[1] == 1 and user.users for user in node.users)


def _forward(graph: fx.Graph, node: Any, known: dict[str, Attention]) -> str:
    query, key, value = node.args[:3]
    dropout = node.args[3] if len(node.args) > 3 else 0.0
    causal = node.args[4] if len(node.args) > 4 else False
    mask, scale = node.kwargs.get("attn_mask"), {"scale": node.kwargs.get("scale")}
    val = query.meta["val"]
    flash = val.dtype in HALF and mask is None and val.shape[-1] <= WIDEST_HEAD
    op: Any = aten._scaled_dot_product_flash_attention.default
    args: tuple[Any, ...] = (query, key, value, dropout, causal)
    if not flash:
        op = aten._scaled_dot_product_efficient_attention.default
        args = (query, key, value, mask, True, dropout, causal)
    items = {int(user.args[1]): user for user in node.users if user.target is operator.getitem}
    with graph.inserting_before(node):
        call = _made(graph.call_function(op, args, scale), node)
        first, second = (6, 7) if flash else (2, 3)
        seed, offset = (
            _made(graph.call_function(operator.getitem, (call, at)), node) for at in (first, second)
        )
    node.replace_all_uses_with(call)
    graph.erase_node(node)
    if 1 in items:
        known[items[1].meta["aotlens_node"]] = Attention(flash, (seed, offset), items[1])
    kind = "flash" if flash else "memory-efficient"
    return KIND.format(kind=kind)


def _backward(graph: fx.Graph, node: Any, known: dict[str, Attention]) -> None:
    gradient, query, key, value, result, log_sum, dropout, causal = node.args
    mask, scale = node.kwargs.get("attn_mask"), {"scale": node.kwargs.get("scale")}
    attention = known[log_sum.meta["aotlens_node"]]
    seed, offset = (_here(graph, state) for state in attention.random_state)
    tensors = (gradient, query, key, value)
    with graph.inserting_before(node):
        if attention.is_flash:
            op: Any = aten._scaled_dot_product_flash_attention_backward.default
            lengths = tuple(_length(graph, tensor) for tensor in (query, key))
            args: Any = (*tensors, result, log_sum, None, None, *lengths, dropout, causal, seed, offset)
        else:
            op = aten._scaled_dot_product_efficient_attention_backward.default
            wanted = [True, True, True, False]  # no gradient of the mask
            args = (*tensors, mask, result, log_sum, seed, offset, dropout, wanted, causal)
        call = _made(graph.call_function(op, args, scale), node)
    node.replace_all_uses_with(call)
    graph.erase_node(node)


def _length(graph: fx.Graph, tensor: Any) -> Any:
    """The length of a sequence: a number, or the size of the tensor where it is symbolic."""
    length = tensor.meta["val"].shape[2]
    return length if isinstance(length, int) else graph.call_function(aten.sym_size.int, (tensor, 2))


def _here(graph: fx.Graph, state: fx.Node) -> fx.Node:
    """The forward's random state in this graph: an input unless it is computed here."""
    if state.graph is graph:
        return state
    inputs = list(graph.find_nodes(op="placeholder"))
    known = next((given for given in inputs if given.meta.get("aotlens_state") is state), None)
    if known is not None:
        return known
    with graph.inserting_after(inputs[-1]):
        given = graph.placeholder(f"attention_state_{len(inputs)}")
    given.meta.update(val=state.meta["val"], aotlens_state=state)
    return given


def _made(made: fx.Node, source: fx.Node) -> fx.Node:
    """A node in the place of another one: what is known of that one holds, except for its value."""
    made.meta = {name: value for name, value in source.meta.items() if name != "val"}
    if made.target is not operator.getitem:
        made.meta["original_aten"] = made.target  # Inductor names kernels by it
    return made
