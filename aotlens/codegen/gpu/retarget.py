"""Retarget graphs recorded on the CPU to a GPU: devices of tensors and operators, and dropout masks."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from aotlens.capture.operators import aten
from aotlens.codegen.gpu.attention import Attention, to_cuda_attention
from aotlens.partition.records import Partitioned
from aotlens.torch_api.fake.tensors import FakeTensorMode

GPU = torch.device("cuda", 0)
TRANSFERS = frozenset({aten._to_copy.default, torch.ops.prims.device_put.default, aten.copy.default})
"""Operators whose input and output may be on different devices."""


def has_gpu_tensors(parts: Partitioned) -> bool:
    """Return True if the script put any tensor of the target on a GPU."""
    programs = [parts.forward] + ([parts.backward] if parts.backward is not None else [])
    values = (node.val for program in programs for node in program.nodes)
    inputs = (program_input.node.val for program in programs for program_input in program.inputs)
    return any(_is_on_gpu(value) for several in (inputs, values) for value in several)


def cpu_operands_of_gpu_ops(module: fx.GraphModule) -> dict[fx.Node, None]:
    """Return the CPU tensors that are operands beside GPU tensors, and what they are computed from."""
    operands: dict[fx.Node, None] = {}
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target in TRANSFERS or not _is_on_gpu(node.meta.get("val")):
            continue
        todo = [operand for operand in node.all_input_nodes if _is_cpu_array(operand)]
        while todo:
            operand = todo.pop()
            if operand not in operands:
                operands[operand] = None
                todo += [source for source in operand.all_input_nodes if _on_cpu(source)]
    return operands


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _is_on_gpu(value: Any) -> bool:
    return any(tensor.device.type == "cuda" for tensor in _tensors(value))


def _on_cpu(node: fx.Node) -> bool:
    return any(tensor.device.type == "cpu" for tensor in _tensors(node.meta.get("val")))


def _is_cpu_array(node: fx.Node) -> bool:
    """Return True for CPU tensors with dimensions; 0-d tensors are passed as kernel arguments."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() > 0


RANDOM_MASK_OP = aten.bernoulli.p
ASSUMED = "dropout masks are uniform random numbers below the probability, generated inside the kernels"


def masks_from_uniform(module: fx.GraphModule) -> list[str]:
    """Replace Bernoulli masks by comparisons of uniform numbers; return the assumptions made."""
    masks = [
        node for node in module.graph.find_nodes(op="call_function", target=RANDOM_MASK_OP) if not node.kwargs
    ]
    for node in masks:
        _replace_mask(module.graph, node)
    return [ASSUMED] if masks else []


def _replace_mask(graph: fx.Graph, node: Any) -> None:
    like, probability = node.args
    shape, dtype, device = like.meta["val"].shape, node.meta["val"].dtype, like.meta["val"].device

    def call(op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        added = graph.call_function(op, args, kwargs)
        added.meta = {name: value for name, value in node.meta.items() if name != "val"}
        return added

    with graph.inserting_before(node):
        sizes = [
            size if isinstance(size, int) else call(aten.sym_size.int, like, dim)
            for dim, size in enumerate(shape)
        ]
        numbers = call(aten.rand.default, sizes, dtype=torch.float32, device=device)
        mask = call(
            torch.ops.prims.convert_element_type.default, call(aten.lt.Scalar, numbers, probability), dtype
        )
    node.replace_all_uses_with(mask)
    graph.erase_node(node)


ALL_MOVED = "every tensor is on the GPU, also what the script keeps on the CPU"
SCRIPT_PLACED = "tensors are where the script has put them, on the GPU or on the CPU"
MOVED_BESIDE = (
    "`{name}`, which was recorded on the CPU, is on the GPU, because an operator combines it with GPU tensors"
)
SAME_OPERATORS = (
    "operators are those of the recording on the CPU; where torch records others on a GPU"
    " (cuDNN attention, fused optimizers), they are not seen"
)


@dataclass(slots=True)
class Retargeting:
    """Retargets the graphs of one target, the forward first; mutable, since the backward depends on the
    forward."""

    mode: FakeTensorMode
    script_placed: bool = False
    """Whether the script put tensors on the GPU itself; otherwise all tensors are moved."""
    kernels_generate_random: bool = True
    """Whether Inductor's kernels generate random numbers, instead of torch's operators."""
    assumptions: list[str] = field(default_factory=list)
    attentions: dict[str, Attention] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.assumptions += [SCRIPT_PLACED if self.script_placed else ALL_MOVED, SAME_OPERATORS]

    def move(self, module: fx.GraphModule, training: bool) -> list[Any]:
        """Change the graph in place; return fake CUDA inputs.

        In training, the forward also returns the RNG states that the backward of its attentions reads.
        """
        assumptions = to_cuda_attention(module, self.attentions)
        if training and assumptions:
            self._return_states(module)
        if self.kernels_generate_random:
            assumptions += masks_from_uniform(module)
        if self.script_placed:
            cpu_operands = cpu_operands_of_gpu_ops(module)
            assumptions += [MOVED_BESIDE.format(name=node.name) for node in cpu_operands]
            for node in cpu_operands:
                _move_value(node)
        constants = _move_arguments(module, self.script_placed)
        if constants:
            assumptions.append("constants that the graph carries are copied to the GPU at each call")
        self.assumptions += [text for text in dict.fromkeys(assumptions) if text not in self.assumptions]
        return self._propagate(module)

    def _propagate(self, module: fx.GraphModule) -> list[Any]:
        """Propagate fake GPU values through the graph and its subgraphs."""
        for body in module.children():
            if isinstance(body, fx.GraphModule):
                self._propagate(body)
        module.recompile()
        with self.mode, torch.no_grad():
            inputs = [self._retargeted_input(node) for node in module.graph.find_nodes(op="placeholder")]
            FakeTensorProp(module, mode=self.mode).propagate_dont_convert_inputs(*inputs)
        return inputs

    def states(self) -> list[fx.Node]:
        """Return the RNG states of all attentions of the forward, in the order in which it returns them."""
        return [state for attention in self.attentions.values() for state in attention.random_state]

    def _retargeted_input(self, node: fx.Node) -> Any:
        """Return the input as a fake tensor on the GPU, or on the CPU where the script left it."""
        attention = self.attentions.get(node.meta.get("aotlens_node", ""))
        if attention is not None and attention.log_sum.graph is not node.graph:
            node.meta["val"] = attention.log_sum.meta["val"]
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return value
        stays = self.script_placed and not node.meta.get("aotlens_moved")
        device = value.device if stays else GPU
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)

    def _return_states(self, module: fx.GraphModule) -> None:
        output: Any = module.graph.output_node()
        output.args = ((*output.args[0], *self.states()),)


def _move_value(node: fx.Node) -> None:
    """Move a value that was recorded on the CPU to the GPU."""
    if node.op == "call_function":
        node.args = fx.node.map_aggregate(node.args, _on_gpu)
        node.kwargs = fx.node.map_aggregate(node.kwargs, _on_gpu)
    elif isinstance(node.meta.get("val"), torch.Tensor):
        node.meta["aotlens_moved"] = True


def _move_arguments(module: fx.GraphModule, placed: bool) -> int:
    """Change device arguments of operators, in subgraphs too; return the number of constants moved."""
    constants = 0
    for node in list(module.graph.nodes):
        if node.op == "call_function" and not placed:
            node.args = fx.node.map_aggregate(node.args, _on_gpu)
            node.kwargs = fx.node.map_aggregate(node.kwargs, _on_gpu)
        elif node.op == "get_attr":
            owned = getattr(module, str(node.target))
            if isinstance(owned, fx.GraphModule):
                constants += _move_arguments(owned, placed)
            elif isinstance(owned, torch.Tensor) and owned.dim() > 0:  # a 0-d tensor is a kernel argument
                if placed and not _is_needed_on_gpu(node):
                    continue
                constants += 1
                _copy_constant(module.graph, node)
    return constants


def _is_needed_on_gpu(constant: fx.Node) -> bool:
    val = constant.meta.get("val")
    return bool(constant.meta.get("aotlens_moved")) or (
        isinstance(val, torch.Tensor) and val.device.type == "cuda"
    )


def _on_gpu(argument: Any) -> Any:
    return GPU if isinstance(argument, torch.device) and argument.type == "cpu" else argument


def _copy_constant(graph: fx.Graph, node: fx.Node) -> None:
    with graph.inserting_after(node):
        copied = graph.call_function(torch.ops.prims.device_put.default, (node, GPU))
    copied.meta = dict(node.meta)
    node.replace_all_uses_with(copied, delete_user_cb=lambda user: user is not copied)
