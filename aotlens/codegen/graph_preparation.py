"""Changes to a graph before Inductor compiles it: crossed writes, symbolic loops, effect tokens, RNG states.

Invariant: the prepared graph computes the same values, in the same order of effects.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aotlens.capture.operators import aten
from aotlens.codegen.graph_adapter import GraphAdapter
from aotlens.codegen.lazy_bits import resolve_lazy_inputs, resolve_lazy_outputs
from aotlens.codegen.output_aliasing import (
    copies_of_same_value,
    outputs_in_cats,
    outputs_of_writes,
    storage_source,
    storages_of_outputs,
    views_of_outputs,
)
from aotlens.ir.program import Program
from aotlens.ir.slots import DIFFERENTIABLE_OUTPUTS
from aotlens.ir.symbols import is_data_dependent, symbols_of
from aotlens.torch_api.hop import has_ordered_effect, make_token, sink_tokens, with_effects


def select_scatter(tensor: torch.Tensor, part: torch.Tensor, dim: int, index: Any) -> Any:
    """Return `tensor` with `part` at one index of a dimension, by comparing all of its indices."""
    if not is_data_dependent(index):
        return NotImplemented
    dim = dim % tensor.dim()
    size = tensor.shape[dim]
    shape = [-1 if axis == dim else 1 for axis in range(tensor.dim())]
    indices: Any = torch.arange(size, device=tensor.device).view(shape)
    # `index + size` is out of range for a nonnegative index
    matches = (indices == index) | (indices == index + size)
    return torch.where(matches, part.unsqueeze(dim), tensor)


DATA_INDEX_RULES: dict[Any, Callable[..., Any]] = {aten.select_scatter.default: select_scatter}


def return_crossed_writes(module: fx.GraphModule) -> tuple[int, ...]:
    """Turn crossed writes into extra outputs of the graph; return the positions of the written inputs.

    A write is crossed if its value is, or may alias, another input that an earlier write changes, as the
    second write of a swap: `a.copy_(b)`, `b.copy_(a)`. The second write means `a` as it was at entry, but
    Inductor, which writes to one input after the other, would read it after the first write. `GraphAdapter`
    does these writes after the graph.
    """
    graph = module.graph
    inputs = {node: index for index, node in enumerate(graph.find_nodes(op="placeholder"))}
    written: set[fx.Node] = set()
    crossed: list[fx.Node] = []
    for write in graph.find_nodes(op="call_function", target=aten.copy_.default):
        target, value = write.args[:2]
        if target in inputs and storage_source(value) in written - {target}:
            crossed.append(write)
        written.add(target)
    if not crossed:
        return ()
    output = graph.output_node()
    results: Any = output.args[0]
    output.update_arg(0, (*results, *(write.args[1] for write in crossed)))
    positions = tuple(inputs[write.args[0]] for write in crossed)
    for write in crossed:
        graph.erase_node(write)
    module.recompile()
    return positions


MORE_OPERANDS = {torch.ops.higher_order.map_impl: 2, torch.ops.higher_order.scan: 3}
"""By operator, the position of the operands that every step receives unchanged."""


def pass_sizes_to_loops(module: fx.GraphModule) -> None:
    """Pass each loop the symbols on which the sizes of its results depend.

    Inductor lays out the results before the loop runs, and knows only the sizes among the loop's operands.
    """
    changed = False
    for loop in list(module.graph.nodes):
        if loop.op != "call_function" or loop.target not in MORE_OPERANDS:
            continue
        sizes = _sizes_of_results(module.graph, loop)
        if sizes:
            position = MORE_OPERANDS[loop.target]
            loop.update_arg(position, (*loop.args[position], *sizes))
            _add_size_parameters(getattr(module, loop.args[0].target), sizes)
            changed = True
    if changed:
        module.recompile()


def _sizes_of_results(graph: fx.Graph, loop: fx.Node) -> list[fx.Node]:
    """Return a node for each symbol in the results' sizes and strides, read from an operand."""
    wanted = symbols_of(loop.meta["val"])
    size_nodes: list[fx.Node] = []
    with graph.inserting_before(loop):
        for operand in loop.all_input_nodes:
            value = operand.meta.get("val")
            for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt) and size.node.expr in wanted:
                    wanted.remove(size.node.expr)
                    node = graph.call_function(aten.sym_size.int, (operand, dim))
                    node.meta["val"] = size
                    size_nodes.append(node)
    return size_nodes


def _add_size_parameters(body: Any, sizes: list[fx.Node]) -> None:
    """Add unused parameters for the sizes to the loop's subgraph."""
    last = list(body.graph.find_nodes(op="placeholder"))[-1]
    with body.graph.inserting_after(last):
        for index, size in reversed(list(enumerate(sizes))):
            parameter = body.graph.placeholder(f"size_{index}")
            parameter.meta["val"] = size.meta["val"]
    body.recompile()


PERMUTATIONS = (aten.randperm.default, aten.randperm.generator)


def index_rows_unchecked(module: fx.GraphModule) -> None:
    """Skip the bounds check of an index by a random permutation, which is always in range."""
    changed = False
    for node in module.graph.find_nodes(op="call_function", target=aten.index.Tensor):
        if any(_is_permutation(index) for index in node.args[1]):
            node.target = aten._unsafe_index.Tensor
            changed = True
    if changed:
        module.recompile()


def _is_permutation(index: object) -> bool:
    """Return True if the index is a permutation, or a slice of one."""
    if isinstance(index, fx.Node) and index.target is aten.slice.Tensor:
        index = index.args[0]
    return isinstance(index, fx.Node) and index.target in PERMUTATIONS


def thread_token(module: fx.GraphModule) -> None:
    """Order the operators with effects by an effect token; a graph without effects stays unchanged."""
    graph = module.graph
    effects = [node for node in graph.nodes if _is_effect(node)]
    if not effects:
        return
    with graph.inserting_before(effects[0]):
        token = graph.call_function(make_token)
    token.meta["val"] = empty = make_token()
    for node in effects:
        token = _order_after(graph, node, token, empty)
    with graph.inserting_before(graph.output_node()):
        graph.call_function(sink_tokens, ([token],))
    module.recompile()


def _is_effect(node: fx.Node) -> bool:
    return (
        node.op == "call_function" and hasattr(node.target, "namespace") and has_ordered_effect(node.target)
    )


def _order_after(graph: fx.Graph, node: Any, token: fx.Node, empty: Any) -> fx.Node:
    """Order the node after the token; return the token that follows it."""
    val = node.meta.get("val")
    results = tuple(val) if isinstance(val, (list, tuple)) else (val,)
    with graph.inserting_before(node):
        call = graph.call_function(with_effects, (token, node.target, *node.args), dict(node.kwargs))
        after = graph.call_function(operator.getitem, (call, 0))
        call.meta = {**node.meta, "val": (empty, *results)}
        after.meta["val"] = empty
        if isinstance(val, (list, tuple)):
            for reader in list(node.users):
                reader.args = (call, reader.args[1] + 1)
        elif node.users:
            result = graph.call_function(operator.getitem, (call, 1))
            result.meta = dict(node.meta)
            node.replace_all_uses_with(result)
    graph.erase_node(node)
    return after


def drop_unread_states(module: fx.GraphModule) -> None:
    """Replace `run_and_save_rng_state` by the random operator where nothing reads the saved state."""
    target = torch.ops.higher_order.run_and_save_rng_state
    unread = [
        node
        for node in module.graph.find_nodes(op="call_function", target=target)
        if not any(user.args[1] == 0 or user.target is not operator.getitem for user in node.users)
    ]
    for node in unread:
        random_op, *args = node.args
        with module.graph.inserting_before(node):
            plain = module.graph.call_function(random_op, tuple(args), dict(node.kwargs))
        plain.meta = {**node.meta, "val": node.meta["val"][1]}
        for user in list(node.users):  # each reads the outputs from the pair
            user.replace_all_uses_with(plain)
            module.graph.erase_node(user)
        module.graph.erase_node(node)
    if unread:
        module.recompile()


def prepare_graph(module: fx.GraphModule, program: Program, recorded: Program | None = None) -> GraphAdapter:
    """Prepare the graph, within its fake mode, and mark which outputs the caller sees.

    `recorded` is the program before Inductor's passes, if they changed it.
    """
    thread_token(module)
    pass_sizes_to_loops(module)
    index_rows_unchecked(module)
    drop_unread_states(module)
    negated = resolve_lazy_inputs(module)
    lazy = resolve_lazy_outputs(module)
    crossed = return_crossed_writes(module)
    output = module.graph.output_node()
    results: Any = output.args[0]
    visible = [
        index
        for index, out in enumerate(program.outputs)
        if isinstance(out.slot, DIFFERENTIABLE_OUTPUTS) and isinstance(results[index], fx.Node)
    ]
    output.meta["user_visible_output_idxs"] = visible
    doubtful, views = outputs_in_cats(module, visible), views_of_outputs(module, visible)
    updated = outputs_of_writes(module)
    copies = copies_of_same_value(module, visible, storages_of_outputs(program, recorded))
    return GraphAdapter(negated, crossed, tuple(doubtful), tuple(views), tuple(updated), tuple(copies), lazy)
