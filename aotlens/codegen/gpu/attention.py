"""Attention on a GPU: the kernel that `scaled_dot_product_attention` selects, and the graph that calls it."""

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import fx

from aotlens.capture.events import Call
from aotlens.capture.operators import aten
from aotlens.errors import with_location
from aotlens.model.report import Span

HALF = (torch.float16, torch.bfloat16)
WIDEST_HEAD = 256
"""The widest head that flash attention supports."""
SMALL_SHARED_MEMORY = ((8, 6), (8, 9), (12, 0), (12, 1))
"""Architectures without enough shared memory for flash attention's backward with some wide heads."""


class AttentionKernel(Enum):
    """The implementations of attention on a GPU."""

    FLASH = "flash"
    EFFICIENT = "memory-efficient"
    STEPS = "steps"


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One call of `scaled_dot_product_attention`."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    is_causal: bool
    enable_gqa: bool

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.query, self.key, self.value

    @property
    def has_gradient(self) -> bool:
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)

    @property
    def heads(self) -> tuple[Any, ...]:
        """The numbers of heads of query, key and value."""
        return tuple(tensor.shape[1] for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """The implementation that torch selects on a GPU."""

    kind: AttentionKernel
    why: str = ""
    """Why each fused kernel is impossible; empty where one is selected."""


def choose_attention_kernel(call: AttentionCall, capability: tuple[int, int]) -> AttentionChoice:
    """Return the kernel on a GPU of that compute capability."""
    flash = next(_flash_obstacles(call, capability), "")
    if not flash:
        return AttentionChoice(AttentionKernel.FLASH)
    efficient = next(_efficient_obstacles(call, capability), "")
    if not efficient:
        return AttentionChoice(AttentionKernel.EFFICIENT)
    if flash == efficient:
        return AttentionChoice(AttentionKernel.STEPS, f"for flash and memory-efficient attention {flash}")
    return AttentionChoice(
        AttentionKernel.STEPS, f"for flash attention {flash}; for memory-efficient attention {efficient}"
    )


def _flash_obstacles(call: AttentionCall, capability: tuple[int, int]) -> Iterator[str]:
    """Yield each violated condition of the flash kernel."""
    head = call.query.shape[-1]
    if not torch.backends.cuda.flash_sdp_enabled():
        yield "the script turns it off"
    yield from _rank_obstacles(call)
    if call.mask is not None:
        yield "there is a mask, which it does not take"
    if head > WIDEST_HEAD or any(tensor.shape[-1] != head for tensor in call.tensors):
        yield f"heads must have one size, at most {WIDEST_HEAD}"
    if capability < (8, 0):
        yield "the GPU is older than sm_80"
    lacks_room = 192 < head <= 224 or (head > 224 and call.dropout > 0)
    if call.has_gradient and capability in SMALL_SHARED_MEMORY and lacks_room:
        yield f"a gradient for heads of {head} numbers does not fit the GPU"
    if call.is_causal and call.query.shape[-2] != call.key.shape[-2]:
        yield "`is_causal` wants as many queries as keys"
    if call.query.dtype not in HALF:
        yield "the type is neither float16 nor bfloat16"
    yield from _layout_obstacles(call, shares_heads=call.enable_gqa)
    if head != 1:
        yield from _stride_obstacles(call)


def _efficient_obstacles(call: AttentionCall, capability: tuple[int, int]) -> Iterator[str]:
    """Yield each violated condition of the memory-efficient kernel."""
    if not torch.backends.cuda.mem_efficient_sdp_enabled():
        yield "the script turns it off"
    yield from _rank_obstacles(call)
    head, of_value = call.query.shape[-1], call.value.shape[-1]
    unit = _unit(call.query.dtype, capability)
    if head != call.key.shape[-1] or not head or not of_value or head % unit or of_value % unit:
        yield f"heads must be multiples of {unit} numbers, the query's as wide as the key's"
    yield from _layout_obstacles(call, shares_heads=False)
    yield from _stride_obstacles(call)
    if call.mask is not None and call.mask.stride(-1) != 1:
        yield "the mask's last dimension is not contiguous"
    known = (torch.float16, torch.float32, *((torch.bfloat16,) if capability >= (8, 0) else ()))
    if call.query.dtype not in known:
        yield "the type has no kernel"


def _rank_obstacles(call: AttentionCall) -> Iterator[str]:
    if any(tensor.dim() != 4 for tensor in call.tensors):
        yield "query, key and value must have 4 dimensions"


def _layout_obstacles(call: AttentionCall, shares_heads: bool) -> Iterator[str]:
    """Yield violated conditions on batches, heads and lengths."""
    queries, keys, values = call.heads
    if len({tensor.shape[0] for tensor in call.tensors}) > 1:
        yield "query, key and value must have one batch size"
    alike = queries == keys == values
    if not alike and not (shares_heads and keys == values and queries % keys == 0):
        yield "query, key and value must have as many heads" if not call.enable_gqa else "`enable_gqa` is on"
    if any(tensor.shape[-2] == 0 for tensor in call.tensors):
        yield "a sequence is empty"


def _stride_obstacles(call: AttentionCall) -> Iterator[str]:
    names = ("query", "key", "value")
    non_contiguous = [
        name for name, tensor in zip(names, call.tensors, strict=True) if tensor.stride(-1) != 1
    ]
    if non_contiguous:
        yield f"the last dimension of {_listed(non_contiguous)} is not contiguous"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _unit(dtype: torch.dtype, capability: tuple[int, int]) -> int:
    """Return the alignment, in elements, that the memory-efficient kernel needs."""
    at_once = 8 if dtype in HALF else 4
    if capability >= (8, 0):
        return at_once
    has_tensor_cores = capability >= (7, 0) and dtype in HALF
    return at_once if has_tensor_cores else 1


FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
FLEX_OPTIONS = 6
"""The position of the kernel options among the arguments of `flex_attention`."""


NAME = "scaled_dot_product_attention"
KERNEL_KEY = f"{NAME} on a GPU takes the {{kind}} kernel"
KERNEL_KINDS = {
    aten._scaled_dot_product_flash_attention.default: "flash",
    aten._scaled_dot_product_efficient_attention.default: "memory-efficient",
}
CHOSEN_STEPS = "is computed in its steps, since torch has no fused kernel for it on this GPU: {why}"

chosen_steps: dict[Span | None, str] = {}
"""By span, why an attention is decomposed on the GPU too; filled while targets are recorded for a GPU."""

SHOWN_IN_STEPS = (
    "is shown in its steps, as a CPU computes it with dropout and in a few other cases; a GPU takes one flash"
    " or memory-efficient kernel, unless the script or the mask forbids both"
)


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention of the forward after retargeting."""

    is_flash: bool
    random_state: tuple[fx.Node, fx.Node]
    """The RNG state outputs of the CUDA operator, which its backward reads."""
    log_sum: fx.Node
    """The rows' log-sum-exp, which the CUDA operator pads."""


def to_cuda_attention(module: fx.GraphModule, known: dict[str, Attention]) -> list[str]:
    """Replace the CPU's attention operators; `known` collects the forward's attentions by their log-sum-exp.

    Returns the assumptions made.
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
            node.target = aten.reshape.default  # a CUDA operator's output may have another layout
    return assumed


def attentions_recorded(calls: Iterable[Call]) -> Iterator[str]:
    """Yield the kernel of each attention chosen while recording, and the assumption about each that was
    decomposed: torch uses this softmax nowhere else."""
    notes: dict[str, None] = {}
    for func, *_, origin in calls:
        if func in KERNEL_KINDS:
            notes[KERNEL_KEY.format(kind=KERNEL_KINDS[func])] = None
        elif func is aten._safe_softmax.default:
            span = origin.location.innermost
            why = chosen_steps.get(span)
            form = SHOWN_IN_STEPS if why is None else CHOSEN_STEPS.format(why=why)
            notes[f"{with_location(NAME, span)}, {form}"] = None
    yield from notes


def _prepare_flex(module: fx.GraphModule) -> None:
    """Adapt FlexAttention nodes that were recorded on a CPU to what Inductor expects."""
    for node in module.graph.nodes:
        name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
        if name == "flex_attention" and _gives_log_sum(node):
            options = {**node.args[FLEX_OPTIONS], "OUTPUT_LOGSUMEXP": True}  # omitted on a CPU
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
        call = _with_metadata_of(graph.call_function(op, args, scale), node)
        first, second = (6, 7) if flash else (2, 3)
        seed, offset = (
            _with_metadata_of(graph.call_function(operator.getitem, (call, index)), node)
            for index in (first, second)
        )
    node.replace_all_uses_with(call)
    graph.erase_node(node)
    if 1 in items:
        known[items[1].meta["aotlens_node"]] = Attention(flash, (seed, offset), items[1])
    kind = "flash" if flash else "memory-efficient"
    return KERNEL_KEY.format(kind=kind)


def _backward(graph: fx.Graph, node: Any, known: dict[str, Attention]) -> None:
    gradient, query, key, value, result, log_sum, dropout, causal = node.args
    mask, scale = node.kwargs.get("attn_mask"), {"scale": node.kwargs.get("scale")}
    attention = known[log_sum.meta["aotlens_node"]]
    seed, offset = (_state_in(graph, state) for state in attention.random_state)
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
        call = _with_metadata_of(graph.call_function(op, args, scale), node)
    node.replace_all_uses_with(call)
    graph.erase_node(node)


def _length(graph: fx.Graph, tensor: Any) -> Any:
    """Return a sequence length: a number, or a size node where it is symbolic."""
    length = tensor.meta["val"].shape[2]
    return length if isinstance(length, int) else graph.call_function(aten.sym_size.int, (tensor, 2))


def _state_in(graph: fx.Graph, state: fx.Node) -> fx.Node:
    """Return the forward's RNG state in this graph: the node itself, or an input for it."""
    if state.graph is graph:
        return state
    inputs = list(graph.find_nodes(op="placeholder"))
    known = next(
        (placeholder for placeholder in inputs if placeholder.meta.get("aotlens_state") is state), None
    )
    if known is not None:
        return known
    with graph.inserting_after(inputs[-1]):
        placeholder = graph.placeholder(f"attention_state_{len(inputs)}")
    placeholder.meta.update(val=state.meta["val"], aotlens_state=state)
    return placeholder


def _with_metadata_of(node: fx.Node, source: fx.Node) -> fx.Node:
    """Copy a node's metadata, except for its value, to the node that replaces it."""
    node.meta = {name: value for name, value in source.meta.items() if name != "val"}
    if node.target is not operator.getitem:
        node.meta["original_aten"] = node.target  # Inductor names kernels by it
    return node
