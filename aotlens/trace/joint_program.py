"""Make our program from a logged joint graph, for our partitioner.

Invariant: the graph is not run.  Tensors are sizes and strides on `meta`, and an operator is only looked up
by name among those that torch has registered.  A body of a higher-order operator becomes its own program.
"""

import ast
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from aotlens.ir.origin import Checkpoint, CheckpointMark, Frames, Origin
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput, getitem
from aotlens.ir.slots import (
    Buffer,
    Gradient,
    IntermediateBase,
    MutatedInput,
    Parameter,
    SymIntInput,
    Tangent,
    UserInput,
    UserOutput,
)
from aotlens.joint.records import Joint
from aotlens.model.report import Input
from aotlens.torch_api.hop import higher_order_operator
from aotlens.torch_api.inductor.compile import register_inductor_operators
from aotlens.torch_api.operators import OpOverload
from aotlens.trace.facts import GraphSet
from aotlens.trace.graphs.records import Argument, Graph, GraphNode, base_slot
from aotlens.trace.graphs.tensor_text import Hints, float_value, size_value, tensor_of
from aotlens.trace.source.lines import Locate, span_of

__all__ = ["JointBuilder", "UnknownGraphError"]

MAX_NODES = 20_000
_COPY = "aten.copy_.default"
"""How the graph writes a new value into an argument."""
_INDEX = re.compile(r"idx=(\d{1,9})")
_ARITHMETIC = {
    "add": operator.add,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "mul": operator.mul,
    "sub": operator.sub,
    "truediv": operator.truediv,
}
"""Python's operators on sizes and symbolic floats."""
_SIZE_FUNCTIONS: dict[str, Any] = {
    f"torch.{function.__name__}": function
    for function in (torch.sym_float, torch.sym_int, torch.sym_max, torch.sym_min, torch.sym_sum)
}
_DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "b8": "bool",
    "c64": "complex64",
    "c128": "complex128",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}


class UnknownGraphError(Exception):
    """The graph holds something that our partitioner cannot handle; the message says what."""


class JointBuilder:
    """Makes our nodes from a logged joint graph."""

    def __init__(self, graphs: GraphSet, graph: Graph, inputs: tuple[Input, ...], locate: Locate) -> None:
        self._graph = graph
        self._inputs = inputs
        self._locate = locate
        self._graphs = graphs
        self._hints: Hints = graphs.facts.hints
        self._bodies: dict[str, Program] = {}
        """Bodies of higher-order operators, by the node that reads them."""
        self._nodes: dict[str, Node] = {}
        self._forward = _forward_names(graph)

    def joint(self) -> Joint:
        if len(self._graph.nodes) > MAX_NODES:
            raise UnknownGraphError(f"the graph has more than {MAX_NODES} nodes")
        if self._graph.unparsed_lines:
            raise UnknownGraphError(
                f"a line of the graph was not understood: {self._graph.unparsed_lines[0]}"
            )
        inputs = tuple(map(self._input, self._graph.arguments))
        nodes = tuple(self._all_nodes())
        outputs = tuple(self._outputs())
        rows = tuple(self._callers_inputs(inputs))
        changed = frozenset(id(node) for node, _, row in rows if row.mutates_data)
        return Joint(Program("joint", inputs, nodes, outputs), changed, _leaves(rows))

    def _callers_inputs(self, inputs: tuple[ProgramInput, ...]) -> Iterator[tuple[Node, int, Input]]:
        """Yield the inputs that the caller passes, with their index and their row of the report."""
        for item in inputs:
            if isinstance(item.slot, UserInput | Parameter | Buffer | SymIntInput):
                row = self._row_at(item.slot.index)
                if row is not None:
                    yield item.node, item.slot.index, row

    def _row_at(self, index: int) -> Input | None:
        """Return the report's row of an input; None if the log lacks it."""
        return self._inputs[index] if index < len(self._inputs) else None

    def _all_nodes(self) -> Iterator[Node]:
        items = _items(self._graph)
        bodies = _bodies(self._graph)
        for node in self._graph.nodes:
            if node.op == "get_attr":
                self._bodies[node.name] = self._body(node, bodies)
            else:
                yield self._node(node, items)

    def _body(self, node: GraphNode, bodies: Mapping[str, Graph | None]) -> Program:
        """Return the body of a higher-order operator."""
        name = node.target.rpartition(".")[2]
        body = bodies.get(name)
        if body is None:
            why = "has two bodies of that name" if name in bodies else "has no text of it"
            raise UnknownGraphError(f"`{node.name}` is `{node.target}`, and the log {why}")
        if body.unparsed_lines:
            raise UnknownGraphError(f"a line of `{name}` was not understood: {body.unparsed_lines[0]}")
        return JointBuilder(self._graphs, body, (), self._locate)._program(name)

    def _program(self, name: str) -> Program:
        """Return a body as a program: its arguments are operands, and all its results outputs."""
        inputs = tuple(
            ProgramInput(self._input_node(argument), UserInput(argument.name, index))
            for index, argument in enumerate(self._graph.arguments)
        )
        nodes = tuple(self._all_nodes())
        outputs = tuple(
            ProgramOutput(self._nodes.get(result.name), UserOutput(result.name, index))
            for index, result in enumerate(self._graph.results)
        )
        return Program(name, inputs, nodes, outputs)

    def _input_node(self, argument: Argument) -> Node:
        node = Node(argument.name, None, (), {}, self._value(argument.type), Origin(Frames(), ""))
        self._nodes[argument.name] = node
        return node

    def _input(self, argument: Argument) -> ProgramInput:
        node, name, (slot, inner) = self._input_node(argument), argument.name, base_slot(argument.slot)
        if slot.startswith("Tangent") or (not slot and name.startswith("tangents")):
            return ProgramInput(node, Tangent(name, inner))
        index = _index(slot)
        if index is None or not slot.startswith(("Plain", "Param", "Buffer")):
            raise UnknownGraphError(f"the input `{name}` is `{slot or 'of an unknown kind'}`")
        row = self._row_at(index)
        if row is not None and row.kind == "Parameter":
            return ProgramInput(node, Parameter(row.name, index, row.fqn or row.name, inner))
        if row is not None and row.kind == "Buffer":
            return ProgramInput(node, Buffer(row.name, index, row.fqn or row.name, inner))
        name = row.name if row else name
        if argument.type.startswith("Sym("):
            return ProgramInput(node, SymIntInput(name, index))
        return ProgramInput(node, UserInput(name, index, inner))

    def _value(self, type_: str) -> Any:
        if match := re.fullmatch(r"Sym\((.*)\)", type_):
            size = size_value(match[1], self._hints)
            if size is None and (number := float_value(match[1], self._graphs.facts.numbers)) is not None:
                return number
            if size is None:
                raise UnknownGraphError(f"the size `{match[1]}` has no value in the log")
            return size
        tensor = tensor_of(type_, self._hints)
        dtype = getattr(torch, _DTYPES.get(tensor.dtype, ""), None) if tensor is not None else None
        if tensor is None or dtype is None:
            raise UnknownGraphError(f"a value of type `{type_ or 'unknown'}`")
        shape = [size_value(str(size), self._hints) for size in tensor.shape]
        stride = [size_value(str(step), self._hints) for step in tensor.stride]
        if None in shape or None in stride or len(shape) != len(stride):
            raise UnknownGraphError(f"a size of `{type_}` has no value in the log")
        return torch.empty_strided(shape, stride, dtype=dtype, device="meta")  # type: ignore[arg-type]  # no None

    def _node(self, node: GraphNode, items: dict[str, dict[int, str]]) -> Node:
        op, args, kwargs = self._call(node)
        val = tuple(self._item(type_) for type_ in _listed(items[node.name])) if node.name in items else None
        origin = Origin(
            Frames(known_spans=span_of(self._locate, node)),
            node.target,
            backward=node.name not in self._forward,
            effect=node.target == _COPY,
            checkpoint=_checkpoint(node.region),
        )
        if val is None:
            val = self._value(node.type) if node.type else ()
        new_node = Node(node.name, op, args, kwargs, val, origin)
        self._nodes[node.name] = new_node
        return new_node

    def _item(self, type_: str) -> Any:
        return self._value(type_) if type_ else None

    def _call(self, node: GraphNode) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        tree = ast.parse(node.expression, mode="eval").body
        if node.target.startswith("getitem["):
            assert isinstance(tree, ast.Subscript)
            return getitem, (self._argument(tree.value), int(node.target[8:-1])), {}
        if isinstance(tree, ast.BinOp) and node.type.startswith("Sym(") and node.target in _ARITHMETIC:
            return _ARITHMETIC[node.target], (self._argument(tree.left), self._argument(tree.right)), {}
        if not isinstance(tree, ast.Call):
            raise UnknownGraphError(f"`{node.name}` is `{node.target}`")
        args = tuple(self._argument(argument) for argument in tree.args)
        kwargs = {word.arg: self._argument(word.value) for word in tree.keywords if word.arg}
        return _operator(node.target), args, kwargs

    def _argument(self, tree: ast.expr) -> Any:
        """Return an argument as in our programs; anything but nodes and plain values stays text."""
        match tree:
            case ast.Name(id=name):
                return self._nodes.get(name) or self._bodies.get(name, name)
            case ast.Constant(value=value):
                return value
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self._argument(element) for element in elements]
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in _DTYPES.values():
                return getattr(torch, name)
        return ast.unparse(tree)

    def _outputs(self) -> Iterator[ProgramOutput]:
        for number, result in enumerate(self._graph.results):
            value = self._nodes.get(result.name)
            text, inner = base_slot(result.slot)
            if inner and value is None and result.name != "None":
                continue  # a size or a device mesh of a subclass
            index = _index(text)
            slot: Any = UserOutput(result.name, index if index is not None else number)
            if text.startswith("GradAOTOutput") or (value is None and "idx" not in text):
                slot = Gradient(result.name, index if index is not None else number)
            elif text.startswith("InputMutation"):
                slot = MutatedInput(result.name, index or 0)
            elif text.startswith("IntermediateBase"):
                slot = IntermediateBase(result.name, index or 0)
            elif not text:
                raise UnknownGraphError("this torch does not say which results are gradients")
            yield ProgramOutput(value, slot)


def _leaves(rows: Iterable[tuple[Node, int, Input]]) -> dict[int, torch.Tensor]:
    """Return the leaves that receive a gradient, by index: their `.grad` counts in the predicted peak."""
    return {
        index: node.val
        for node, index, row in rows
        if row.requires_grad and row.is_leaf and isinstance(node.val, torch.Tensor)
    }


def _operator(target: str) -> Any:
    """Look up the operator among the registered ones; nothing is imported or called."""
    parts = target.split(".")
    value: Any = _SIZE_FUNCTIONS.get(target)
    if value is not None:
        return value
    if len(parts) == 2 and parts[0] == "higher_order":
        function = higher_order_operator(parts[1])
        if function is None:
            raise UnknownGraphError(f"`{target}` is not an operator of the installed torch")
        return function
    if len(parts) == 3 and parts[0] in ("aten", "prims", "quantized", "_c10d_functional"):
        if parts[0] == "prims":
            register_inductor_operators()
        value = getattr(getattr(getattr(torch.ops, parts[0]), parts[1], None), parts[2], None)
    if not isinstance(value, OpOverload):
        raise UnknownGraphError(f"`{target}` is not an operator of the installed torch")
    return value


def _index(slot: str) -> int | None:
    match = _INDEX.search(slot)
    return int(match[1]) if match else None


def _bodies(graph: Graph) -> dict[str, Graph | None]:
    """Return the bodies of higher-order operators by name; None for a name that two of them have."""
    bodies: dict[str, Graph | None] = {}
    for body in graph.subgraphs:
        bodies[body.name] = None if body.name in bodies else body
    return bodies


def _items(graph: Graph) -> dict[str, dict[int, str]]:
    """Return the types of the results of operators with several results, by node and position."""
    items: dict[str, dict[int, str]] = {}
    for node in graph.nodes:
        if node.target.startswith("getitem[") and node.inputs and node.target[8:-1].isdigit():
            items.setdefault(node.inputs[0], {})[min(int(node.target[8:-1]), 10_000)] = node.type
    return items


def _listed(by_position: dict[int, str]) -> list[str]:
    return [by_position.get(position, "") for position in range(max(by_position) + 1)]


def _checkpoint(region: str) -> Checkpoint | None:
    match = re.fullmatch(r"(\d{1,9}) - (\w+)", region)
    if match is None or match[2] not in CheckpointMark.__members__:
        return None
    return Checkpoint(int(match[1]), CheckpointMark[match[2]])


def _forward_names(graph: Graph) -> set[str]:
    """Return the nodes that results other than gradients, and writes to arguments, need."""
    slots = {argument.name: base_slot(argument.slot)[0] for argument in graph.arguments}
    behind = {name for name, slot in slots.items() if slot.startswith("Tangent")}
    for node in graph.nodes:
        if not behind.isdisjoint(node.inputs):
            behind.add(node.name)
    results = {result.name: base_slot(result.slot)[0] for result in graph.results}
    needed = {name for name, slot in results.items() if not slot.startswith("GradAOTOutput")}
    needed |= {node.name for node in graph.nodes if node.target == _COPY and node.name not in behind}
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed.update(node.inputs)
    for node in graph.nodes:  # a result that only the backward reads is the forward's too
        if node.target.startswith("getitem[") and not needed.isdisjoint(node.inputs):
            needed.add(node.name)
    return needed
