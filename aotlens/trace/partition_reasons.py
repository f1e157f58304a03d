"""Run our partitioner on a graph that torch compiled, for reasons and certificates of what torch saved.

Invariant: our solver handles the joint graph like those of our own programs.  A reason is shown for a value
that both save; the report says if only torch saves it.  The graph is not run: tensors are sizes and strides
on `meta`, and an operator is only looked up by name.

Only this module and `what_ifs` import torch; both are loaded on demand.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotlens.build.partition import certificate_row, freedom_of
from aotlens.errors import UserError
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
from aotlens.model.partition import FrontierPoint, OwnChoice, Partition, SavedValue
from aotlens.model.report import Input
from aotlens.partition.budget import Frontier
from aotlens.partition.explain import certificates
from aotlens.partition.policies import added_bytes, save_all_reads
from aotlens.partition.problem import PRICED, build_problem
from aotlens.partition.records import Split
from aotlens.partition.stage import recomputed_values, split_joint
from aotlens.partition.storages import storage_root
from aotlens.policy import Policy
from aotlens.torch_api.inductor import register_inductor_operators
from aotlens.torch_api.operators import OpOverload
from aotlens.trace.facts import GraphSet
from aotlens.trace.graphs.records import Graph, GraphNode
from aotlens.trace.graphs.tensor_text import Hints, size_value, tensor_of
from aotlens.trace.partition import TORCH_CHOSE
from aotlens.trace.source.lines import Locate, span_of
from aotlens.trace.what_ifs import DEFAULT, SolverRequest

__all__ = ["with_reasons"]

MAX_NODES = 20_000
_COPY = "aten.copy_.default"
"""How the graph writes a new value into an argument."""
_INDEX = re.compile(r"idx=(\d{1,9})")
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


class _UnknownError(Exception):
    """The graph holds something that our partitioner cannot handle; the message says what."""


@dataclass(frozen=True, slots=True)
class LoggedJoint(Joint):
    """A joint graph from a log."""

    changed: frozenset[int] = frozenset()
    leaves: dict[int, torch.Tensor] = field(default_factory=dict)
    """The leaf inputs that require a gradient, by index."""

    @property
    def changed_inputs(self) -> frozenset[int]:
        return self.changed

    def leaf(self, index: int) -> Any:
        return self.leaves.get(index)


def with_reasons(
    partition: Partition,
    graphs: GraphSet,
    inputs: tuple[Input, ...],
    locate: Locate,
    request: SolverRequest = DEFAULT,
) -> Partition:
    """Return the partition with our reasons where the choices agree, and with what ours would save.

    Raises UserError for a what-if that is impossible for this graph.
    """
    if graphs.joint is None:
        return replace(partition, own_note="the log has no joint graph, so our solver was not asked")
    try:
        joint = _Builder(graphs, graphs.joint, inputs, locate).joint()
        split = split_joint(joint, Policy.parse(request.policy))
    except (_UnknownError, UserError) as error:
        return replace(partition, own_note=f"our solver was not asked: {error}")
    ours = {node.name: node for node in split.saved}
    roots = {storage_root(node).name: node for node in split.saved}
    by_name = {node.name: node for node in joint.program.nodes}
    certificates_by_node = certificates(split)
    rows = []
    for value in partition.saved:
        own = ours.get(value.node)
        if own is None and value.node in by_name:
            own = roots.get(storage_root(by_name[value.node]).name)
        rows.append(_row(value, own, split, certificates_by_node))
    return replace(
        partition,
        saved=tuple(rows),
        own=_own_choice(partition, joint, split),
        default_bytes=added_bytes(joint, save_all_reads(joint, split.sides).saved),
        frontier=_frontier(joint, split),
        what_if=request.answers(joint, split),
    )


def _frontier(joint: Joint, split: Split) -> tuple[FrontierPoint, ...]:
    problem = build_problem(joint, split.sides, PRICED, split.choice.forced)
    return tuple(FrontierPoint(point.size_bytes, point.flops) for point in Frontier(problem).points())


def _row(
    value: SavedValue, own: Node | None, split: Split, certificates_by_node: dict[int, Any]
) -> SavedValue:
    if own is None:
        why = f"{TORCH_CHOSE}; ours would not save it" if value.bytes else TORCH_CHOSE
        return replace(value, reason=why)
    reason = split.choice.why_saved(own)
    named = certificates_by_node.get(id(own))
    return replace(
        value,
        reason=reason.text,
        code=reason.value,
        freedom=freedom_of(reason),
        certificate=certificate_row(named) if named is not None else None,
    )


def _own_choice(partition: Partition, joint: Joint, split: Split) -> OwnChoice:
    torchs = {value.node for value in partition.saved if value.bytes}
    problem = split.choice.problem
    sizes = {id(value.node): value.size_bytes for value in problem.values} if problem is not None else {}
    new = [node.name for node in split.saved if node.op is not None and sizes.get(id(node))]
    added = added_bytes(joint, split.saved)
    recomputed = recomputed_values(split)
    return OwnChoice(
        policy=str(split.policy),
        saved_bytes=added,
        recompute_flops=sum(item.flops for item in recomputed),
        same=tuple(name for name in new if name in torchs),
        only_ours=tuple(name for name in new if name not in torchs),
        only_torchs=tuple(value.node for value in partition.saved if value.bytes and value.node not in new),
    )


class _Builder:
    """Makes our nodes from a logged joint graph."""

    def __init__(self, graphs: GraphSet, graph: Graph, inputs: tuple[Input, ...], locate: Locate) -> None:
        self._graph = graph
        self._inputs = inputs
        self._locate = locate
        self._hints: Hints = graphs.facts.hints
        self._nodes: dict[str, Node] = {}
        self._forward = _forward_names(graph)

    def joint(self) -> LoggedJoint:
        if len(self._graph.nodes) > MAX_NODES:
            raise _UnknownError(f"the graph has more than {MAX_NODES} nodes")
        if self._graph.unparsed_lines:
            raise _UnknownError(f"a line of the graph was not understood: {self._graph.unparsed_lines[0]}")
        inputs = tuple(
            self._input(argument.name, argument.type, argument.slot) for argument in self._graph.arguments
        )
        items = _items(self._graph)
        nodes = tuple(self._node(node, items) for node in self._graph.nodes)
        outputs = tuple(self._outputs())
        changed = frozenset(
            id(item.node)
            for item in inputs
            if 0 <= getattr(item.slot, "index", -1) < len(self._inputs)
            and not isinstance(item.slot, Tangent)
            and self._inputs[item.slot.index].mutates_data  # type: ignore[union-attr]  # tangents have none
        )
        return LoggedJoint(Program("joint", inputs, nodes, outputs), changed, self._leaves(inputs))

    def _leaves(self, inputs: tuple[ProgramInput, ...]) -> dict[int, torch.Tensor]:
        leaves = {}
        for item in inputs:
            index = getattr(item.slot, "index", len(self._inputs))
            row = self._inputs[index] if 0 <= index < len(self._inputs) else None
            if (
                row is not None
                and row.requires_grad
                and row.is_leaf
                and isinstance(item.node.val, torch.Tensor)
            ):
                leaves[index] = item.node.val
        return leaves

    def _input(self, name: str, type_: str, slot: str) -> ProgramInput:
        node = Node(name, None, (), {}, self._value(type_), Origin(Frames(), ""))
        self._nodes[name] = node
        if slot.startswith("Tangent") or (not slot and name.startswith("tangents")):
            return ProgramInput(node, Tangent(name))
        index = _index(slot)
        if index is None or not slot.startswith(("Plain", "Param", "Buffer")):
            raise _UnknownError(f"the input `{name}` is `{slot or 'of an unknown kind'}`")
        row = self._inputs[index] if index < len(self._inputs) else None
        if row is not None and row.kind == "Parameter":
            return ProgramInput(node, Parameter(row.name, index, row.fqn or row.name))
        if row is not None and row.kind == "Buffer":
            return ProgramInput(node, Buffer(row.name, index, row.fqn or row.name))
        slot_class = SymIntInput if type_.startswith("Sym(") else UserInput
        return ProgramInput(node, slot_class(row.name if row else name, index))

    def _value(self, type_: str) -> Any:
        if match := re.fullmatch(r"Sym\((.*)\)", type_):
            size = size_value(match[1], self._hints)
            if size is None:
                raise _UnknownError(f"the size `{match[1]}` has no value in the log")
            return size
        tensor = tensor_of(type_, self._hints)
        dtype = getattr(torch, _DTYPES.get(tensor.dtype, ""), None) if tensor is not None else None
        if tensor is None or dtype is None:
            raise _UnknownError(f"a value of type `{type_ or 'unknown'}`")
        shape = [size_value(str(size), self._hints) for size in tensor.shape]
        stride = [size_value(str(step), self._hints) for step in tensor.stride]
        if None in shape or None in stride or len(shape) != len(stride):
            raise _UnknownError(f"a size of `{type_}` has no value in the log")
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
        if not isinstance(tree, ast.Call):
            raise _UnknownError(f"`{node.name}` is `{node.target}`")
        args = tuple(self._argument(argument) for argument in tree.args)
        kwargs = {word.arg: self._argument(word.value) for word in tree.keywords if word.arg}
        return _operator(node.target), args, kwargs

    def _argument(self, tree: ast.expr) -> Any:
        """Return an argument as in our programs; anything but nodes and plain values stays text."""
        match tree:
            case ast.Name(id=name):
                return self._nodes.get(name, name)
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
            index = _index(result.slot)
            slot: Any = UserOutput(result.name, index if index is not None else number)
            if result.slot.startswith("GradAOTOutput") or (value is None and "idx" not in result.slot):
                slot = Gradient(result.name, index if index is not None else number)
            elif result.slot.startswith("InputMutation"):
                slot = MutatedInput(result.name, index or 0)
            elif result.slot.startswith("IntermediateBase"):
                slot = IntermediateBase(result.name, index or 0)
            elif not result.slot:
                raise _UnknownError("this torch does not say which results are gradients")
            yield ProgramOutput(value, slot)


def _operator(target: str) -> OpOverload:
    """Look up the operator among the registered ones; nothing is imported or called."""
    parts = target.split(".")
    value: Any = None
    if len(parts) == 3 and parts[0] in ("aten", "prims", "quantized", "_c10d_functional"):
        if parts[0] == "prims":
            register_inductor_operators()
        value = getattr(getattr(getattr(torch.ops, parts[0]), parts[1], None), parts[2], None)
    if not isinstance(value, OpOverload):
        raise _UnknownError(f"`{target}` is not an operator of the installed torch")
    return value


def _index(slot: str) -> int | None:
    match = _INDEX.search(slot)
    return int(match[1]) if match else None


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
    behind = {argument.name for argument in graph.arguments if argument.slot.startswith("Tangent")}
    for node in graph.nodes:
        if not behind.isdisjoint(node.inputs):
            behind.add(node.name)
    needed = {result.name for result in graph.results if not result.slot.startswith("GradAOTOutput")}
    needed |= {node.name for node in graph.nodes if node.target == _COPY and node.name not in behind}
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return needed
