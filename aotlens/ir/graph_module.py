"""Programs as torch's own graph modules, and graph modules as our nodes.

Backends and callers of the `functorch.compile` API take graph modules; partition functions, Inductor's passes
and users who edit a joint graph return them.  Invariants: every node has `meta["val"]`, `stack_trace` and
`original_aten`; a node that introduces data-dependent sizes has `unbacked_bindings`; inputs have the names
that such callers look up (`primals_1`, `tangents_1`, `arg0_1`); a node that came from one of our programs
keeps its origin, wherever the user moved it.
"""

import linecache
import operator
from collections.abc import Mapping, Sequence
from functools import partial
from types import MethodDescriptorType
from typing import Any

import torch
from torch import fx

from aotlens.ir.names import free_name, torch_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import (
    Node,
    Program,
    ProgramInput,
    ProgramOutput,
    getitem,
    map_leaves,
    map_nodes,
    op_name,
)
from aotlens.ir.slots import BackwardRngState, RngState, Tangent, UserInput, UserOutput
from aotlens.ir.symbols import SymbolicExpression, bind_unbacked_symbols, expression_nodes
from aotlens.ir.watched_module import WatchedGraphModule, watch
from aotlens.model.report import Span
from aotlens.torch_api.graph_text import write_keywords

aten = torch.ops.aten


def to_graph_module(program: Program, training: bool, names: Sequence[str] | None = None) -> fx.GraphModule:
    """Return the program as a `GraphModule` over flat inputs that returns a tuple.

    With `names`, the inputs' names, nodes are named as by torch's own tracer, and a reshape that copies
    nothing is a view.
    """
    graph = fx.Graph()
    write_keywords(graph)
    converted: dict[int, Any] = {}
    """Per node, a graph node, or the number that its size specialised to."""
    owned: dict[str, Any] = {}
    for name, graph_input in zip(names or _input_names(program, training), program.inputs, strict=True):
        placeholder = graph.placeholder(name)
        placeholder.target = placeholder.name  # fx renames a name that hides a builtin: `sum`
        placeholder.meta["val"] = graph_input.node.val
        placeholder.meta["aotlens_slot"] = graph_input.slot
        converted[id(graph_input.node)] = placeholder
    for node in program.nodes:
        converted[id(node)] = _add(graph, node, converted, owned, names is not None)
    results = tuple(map_nodes(output.value, lambda node: converted[id(node)]) for output in program.outputs)
    several = list(results) if program.returns_list else results
    output = graph.output(results[0] if program.returns_single else several)
    output.meta["aotlens_slots"] = tuple(out.slot for out in program.outputs)
    bind_unbacked_symbols(graph)
    root = torch.nn.Module()
    for name, value in owned.items():
        if isinstance(value, torch.Tensor):
            root.register_buffer(name, value, persistent=False)
        else:
            setattr(root, name, value)
    return watch(WatchedGraphModule(root, graph, class_name=program.name))


def _input_names(program: Program, training: bool) -> list[str]:
    names, primals, tangents = [], 0, 0
    for graph_input in program.inputs:
        if isinstance(graph_input.slot, Tangent):
            tangents += 1
            names.append(f"tangents_{tangents}")
        elif program.name == "backward" or isinstance(graph_input.slot, (RngState, BackwardRngState)):
            names.append(graph_input.node.name)
        else:
            primals += 1
            names.append(f"primals_{primals}" if training else f"arg{primals - 1}_1")
    return names


def _add(
    graph: fx.Graph, node: Node, converted: dict[int, Any], owned: dict[str, Any], as_torch: bool
) -> Any:
    if node.constant is not None:
        owned[node.name] = node.constant
        result = graph.get_attr(node.name)
        result.meta["val"] = node.val
        return result
    if isinstance(node.val, (torch.SymInt, torch.SymBool)) and not node.val.node.expr.free_symbols:
        return int(node.val) if isinstance(node.val, torch.SymInt) else bool(node.val)
    if isinstance(node.op, SymbolicExpression):
        return expression_nodes(graph, node.op, [converted[id(arg)] for arg in node.args], node.val)
    op: Any = operator.getitem if node.op is getitem else node.op
    change = lambda source: converted[id(source)]

    def subgraph(program: Program) -> fx.Node:
        if id(program) not in converted:
            owned[program.name] = to_graph_module(program, training=False)
            converted[id(program)] = graph.get_attr(program.name)
        return converted[id(program)]

    args, kwargs = map_nodes(node.args, change, subgraph), map_nodes(node.kwargs, change, subgraph)
    name = node.name
    if as_torch:
        name, op = torch_name(node), aten.view.default if _is_view_reshape(node) else op
    if isinstance(op, MethodDescriptorType):  # fx cannot name a method as a function
        result = graph.create_node("call_method", op.__name__, args, kwargs, name=name)
    else:
        result = graph.create_node("call_function", op, args, kwargs, name=name)
    _set_metadata(result, node)
    return result


def _is_view_reshape(node: Node) -> bool:
    """Return True if the node reshapes a contiguous tensor."""
    if node.op is not aten.reshape.default:
        return False
    tensor = node.args[0].val
    return all(type(size) is int for size in tensor.shape) and bool(tensor.is_contiguous())


def _set_metadata(result: fx.Node, node: Node) -> None:
    meta = result.meta
    meta["val"] = list(node.val) if isinstance(node.val, tuple) else node.val
    if "tensors_to_clone" in node.kwargs:  # a Triton kernel returns a dict by argument name
        meta["val"] = dict(zip(node.kwargs["tensors_to_clone"], node.val, strict=True))
    meta["aotlens_node"] = node.name
    meta["aotlens_origin"] = node.origin
    spans = node.origin.location.spans
    if spans:
        meta["stack_trace"] = "".join(_frame_text(span) for span in reversed(spans))
    if result.op == "call_function":
        whole: Any = result.args[0] if node.op is getitem else result
        meta["original_aten"] = whole.target
    meta["source_fn_stack"] = [(node.name, node.op)]


def _frame_text(span: Span) -> str:
    line = linecache.getline(span.file, span.line).strip()
    return f'  File "{span.file}", line {span.line}, in forward\n    {line}\n'


Converted = dict[fx.Node, Any]
"""By graph node: our node, or the program of a higher-order operator's subgraph."""


def import_graph(module: fx.GraphModule, placeholders: Mapping[fx.Node, Node]) -> Converted:
    """Convert each node of the graph but its output; `placeholders` maps some of them to existing nodes."""
    converted: Converted = dict(placeholders)
    for node in module.graph.nodes:
        if node.op != "output" and node not in converted:
            converted[node] = import_node(module, node, converted)
    return converted


def nodes_of(converted: Converted) -> tuple[Node, ...]:
    """Return the nodes that compute something, in order."""
    return tuple(
        ours for node, ours in converted.items() if node.op != "placeholder" and isinstance(ours, Node)
    )


def _subgraph(module: fx.GraphModule, name: str) -> Program:
    """Convert a subgraph of a higher-order operator."""
    converted = import_graph(module, {})
    placeholders = module.graph.find_nodes(op="placeholder")
    inputs = [
        ProgramInput(converted[node], UserInput(node.name, index)) for index, node in enumerate(placeholders)
    ]
    results = outputs_of(module, converted)
    outputs = [
        ProgramOutput(value, UserOutput(f"out[{index}]", index)) for index, value in enumerate(results)
    ]
    return Program(name, tuple(inputs), nodes_of(converted), tuple(outputs))


def outputs_of(module: fx.GraphModule, converted: Converted) -> list[Any]:
    """Return the graph's flat outputs, as nodes or plain values."""
    return [converted[value] if isinstance(value, fx.Node) else value for value in flat_outputs(module)]


def flat_outputs(module: fx.GraphModule) -> list[Any]:
    results: Any = module.graph.output_node().args[0]
    return list(results) if isinstance(results, (list, tuple)) else [results]


def import_node(module: fx.GraphModule, node: fx.Node, converted: Converted) -> Node | Program:
    """Convert one node; `converted` holds its inputs."""
    name, val, origin = free_name(node.name), _value(node), _origin(node)
    if node.op == "placeholder":
        return Node(name, None, (), {}, val, origin)
    if node.op == "get_attr":
        constant = operator.attrgetter(str(node.target))(module)
        if isinstance(constant, fx.GraphModule):
            return _subgraph(constant, name)
        return Node(name, None, (), {}, constant if val is None else val, origin, constant=constant)
    change = partial(_change_leaf, converted)
    args = tuple(map_leaves(arg, change) for arg in node.args)
    kwargs = {key: map_leaves(arg, change) for key, arg in node.kwargs.items()}
    op: Any = getitem if node.target is operator.getitem else node.target
    if node.op == "call_method":  # of a generator: methods of tensors are operators by then
        op = getattr(torch.Generator, str(node.target))
    return Node(name, op, args, kwargs, val, origin)


def _value(node: fx.Node) -> Any:
    val = node.meta.get("val")
    return tuple(val) if isinstance(val, list) else val


def _origin(node: fx.Node) -> Origin:
    origin = node.meta.get("aotlens_origin")
    if origin is not None:
        return origin
    schema = getattr(node.target, "_schema", None)
    name = op_name(node.target) if callable(node.target) else ""
    effect = schema is not None and schema.is_mutable
    return Origin(NO_ORIGIN, name, stage="joint", reason="added by the user's graph pass", effect=effect)


def _change_leaf(converted: Converted, leaf: Any) -> Any:
    """Return a leaf of a graph node's arguments with our nodes, also in a slice.

    At the top level: a nested function that calls itself refers to itself, and would keep the program until a
    garbage collection.
    """
    if isinstance(leaf, slice):
        return slice(*(_change_leaf(converted, bound) for bound in (leaf.start, leaf.stop, leaf.step)))
    return converted[leaf] if isinstance(leaf, fx.Node) else leaf
