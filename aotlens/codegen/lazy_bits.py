"""Lazily negated or conjugated tensors, for Inductor, whose kernels read memory as it is.

Invariant: the graph receives inputs as they are in memory, without the negative bit, and negates them itself,
also in what it writes back. Its outputs are what must be in memory; the adapter sets their bits.
"""

from typing import Any

import torch
from torch import fx

from aotlens.capture.operators import Kind, aten, describe
from aotlens.torch_api.operators import OpOverload


def resolve_lazy_inputs(module: fx.GraphModule) -> tuple[int, ...]:
    """Make the graph take lazily negated inputs as they are in memory; return their positions."""
    graph = module.graph
    inputs = list(graph.find_nodes(op="placeholder"))
    positions = tuple(index for index, node in enumerate(inputs) if _is_negated(node.meta.get("val")))
    for index in positions:
        placeholder = inputs[index]
        value = placeholder.meta["val"]
        with torch.no_grad():
            placeholder.meta["val"] = aten._neg_view.default(value)
        with graph.inserting_before(inputs[-1].next):
            negated = graph.call_function(aten.neg.default, (placeholder,))
        negated.meta = {**placeholder.meta, "val": aten.neg.default(placeholder.meta["val"])}
        for user in list(placeholder.users):
            if user is negated:
                continue
            if user.target is aten.copy_.default and user.args[0] is placeholder:
                _negate_written(graph, user)
            else:
                user.replace_input_with(placeholder, negated)
    if positions:
        module.recompile()
    return positions


LAZY = ((aten._conj.default, torch.Tensor.is_conj), (aten._neg_view.default, torch.Tensor.is_neg))
"""The views that conjugate and negate lazily, and the predicates that recognise them."""


def resolve_lazy_outputs(module: fx.GraphModule) -> tuple[tuple[int, str], ...]:
    """Make the graph return lazy outputs as they are in memory; return their positions, each with the lazy
    operator.

    Inductor may copy an output to change its layout, and a copy has no lazy bits.
    """
    output = module.graph.output_node()
    original: Any = output.args[0]
    results, lazy_outputs = list(original), []
    for index, node in enumerate(results):
        value: Any = node.meta.get("val") if isinstance(node, fx.Node) and node.op != "placeholder" else None
        for view, is_lazy in LAZY if isinstance(value, torch.Tensor) else ():
            if is_lazy(value):
                results[index] = _in_memory(module.graph, output, results[index], (view, is_lazy))
                lazy_outputs.append((index, str(view)))
    if lazy_outputs:
        output.update_arg(0, type(original)(results))
        module.recompile()
    return tuple(reversed(lazy_outputs))


def _in_memory(graph: fx.Graph, output: fx.Node, node: fx.Node, lazy: tuple[Any, Any]) -> Any:
    """Return the node as it is in memory, without its lazy bit; views of it become views of the value in
    memory."""
    view, is_lazy = lazy
    source: Any = node.args[0] if node.args else None
    if node.target is view:
        return source
    is_view = isinstance(node.target, OpOverload) and describe(node.target).kind is Kind.VIEW
    views_lazy = is_view and isinstance(source.meta["val"], torch.Tensor) and is_lazy(source.meta["val"])
    target, args = view, (node,)
    if views_lazy and isinstance(node.meta["val"], torch.Tensor):
        target, args = node.target, (_in_memory(graph, output, source, lazy), *node.args[1:])
    with graph.inserting_before(output):
        in_memory = graph.call_function(target, args, node.kwargs if target is not view else {})
    with torch.no_grad():  # the fake value may require grad, and autograd need not record this view
        in_memory.meta = {**node.meta, "val": view(node.meta["val"])}
    return in_memory


def _is_negated(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_neg()


def _negate_written(graph: fx.Graph, write: fx.Node) -> None:
    source: Any = write.args[1]
    with graph.inserting_before(write):
        negated = graph.call_function(aten.neg.default, (source,))
    negated.meta = {**source.meta, "val": aten.neg.default(source.meta["val"])}
    write.update_arg(1, negated)
