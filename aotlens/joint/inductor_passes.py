"""Inductor's passes over the joint graph, such as replacing hand-written attention and folding constants.

`torch.compile` runs them before it partitions the graph, so they run before our partition stage.  Invariant:
a node that the passes leave alone stays the same node; if they change nothing, or their change cannot be
traced back to our nodes, the recorded program is used.
"""

import operator
from dataclasses import replace
from typing import Any

from torch import fx

from aotlens.capture.operators import Kind, describe
from aotlens.ir.graph_module import flat_outputs, import_node, to_graph_module
from aotlens.ir.names import free_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node, Program, ProgramOutput, has_effect, op_name, reachable, writes_input
from aotlens.ir.slots import BACKWARD_INPUTS, GRADIENTS
from aotlens.ir.symbols import symbolic_numbers_of
from aotlens.joint.records import JointProgram
from aotlens.torch_api.inductor.compile import run_joint_passes

REASON = "added by an Inductor pass, in place of operators of your code"
STAGE = "joint passes"
MARK = "aotlens"
"""Key in a node's custom metadata, which passes copy to the nodes that they insert in its place."""


def with_joint_passes(joint: JointProgram, config: dict[str, Any]) -> JointProgram:
    """Return the joint program after Inductor's passes; the same object if they change nothing."""
    if not _can_follow(joint):
        return joint
    module = to_graph_module(joint.program, joint.training)
    tracker = _NodeTracker(joint.program, module)
    try:
        run_joint_passes(module, joint.captured.fake_mode, config)
    except RuntimeError:  # a pattern fails on this graph, and may have replaced half of it
        return joint
    program = tracker.changed_program(module)
    if program is None or _merges_results(program, joint.program):
        return joint
    if not _reads_of_changed(program, joint) <= _reads_of_changed(joint.program, joint):
        return joint
    if not _returned_inputs(program) <= _returned_inputs(joint.program):
        return joint
    return replace(joint, program=program, before_passes=joint.program)


def _can_follow(joint: JointProgram) -> bool:
    """Return False for symbolic sizes, which a pass could specialise, and for effects: their order counts."""
    captured = joint.captured
    nodes = joint.program.nodes
    return (
        not any(symbolic_numbers_of(graph_input.node.val) for graph_input in joint.program.inputs)
        and not any(symbolic_numbers_of(node.val) for node in nodes)
        and joint.failing is None
        and captured.hooks is None
        and not any(captured_input.wrapped is not None for captured_input in captured.inputs)
        and not any(node.subgraphs() or (has_effect(node) and not writes_input(node)) for node in nodes)
    )


def _merges_results(after: Program, before: Program) -> bool:
    """Return True if two outputs have become one value because a pass removed the copies between them."""

    def distinct(program: Program) -> int:
        return len({id(out.value) for out in program.outputs if isinstance(out.value, Node)})

    return distinct(after) < distinct(before)


def _returned_inputs(program: Program) -> set[str]:
    """Return the outputs that are an input or a view of one, whose owner may write to it."""
    inputs = {id(graph_input.node) for graph_input in program.inputs}
    names = set()
    for out in program.outputs:
        value = out.value if not isinstance(out.slot, GRADIENTS) else None
        if isinstance(value, Node) and id(_view_root(value)) in inputs:
            names.add(out.slot.name)
    return names


def _view_root(node: Node) -> Node:
    while _is_view(node):
        node = node.args[0]
    return node


def _is_view(node: Node) -> bool:
    return hasattr(node.op, "_schema") and describe(node.op).kind is Kind.VIEW


def _reads_of_changed(program: Program, joint: JointProgram) -> set[tuple[str, str]]:
    """Return the readers of inputs that the function changes, each with what it reads."""
    changed = joint.changed_inputs
    return {
        (node.name, read.name)
        for node in program.nodes
        for read in (*node.inputs(), *map(_view_root, node.inputs()))
        if id(read) in changed
    }


class _NodeTracker:
    """Follows the nodes of one graph module through the passes."""

    def __init__(self, before: Program, module: fx.GraphModule) -> None:
        self.before = before
        ours = {node.name: node for node in before.nodes}
        placeholders = module.graph.find_nodes(op="placeholder")
        self.node_of = {node: item.node for node, item in zip(placeholders, before.inputs, strict=True)}
        for node in module.graph.nodes:
            name = node.meta.get("aotlens_node") or (str(node.target) if node.op == "get_attr" else "")
            if name in ours:
                self.node_of[node] = ours[name]
                node.meta["custom"] = {**node.meta.get("custom", {}), MARK: name}
        self.calls = {node: _call(node) for node in self.node_of}
        """The target and arguments of each node."""

    def changed_program(self, module: fx.GraphModule) -> Program | None:
        """Return the graph module as a program; None if it is unchanged."""
        converted: dict[fx.Node, Any] = {}
        names = {node.name for node in self.before.nodes}
        origins = self._origins(module)
        for node in module.graph.nodes:
            if node.op != "output":
                converted[node] = self._node(module, node, converted, names, origins)
        results = [
            converted[value] if isinstance(value, fx.Node) else value for value in flat_outputs(module)
        ]
        outputs = tuple(
            ProgramOutput(value, out.slot) for value, out in zip(results, self.before.outputs, strict=True)
        )
        computed = tuple(value for node, value in converted.items() if node.op != "placeholder")
        nodes = reachable([out.value for out in outputs], computed)
        if [id(node) for node in nodes] == [id(node) for node in self.before.nodes]:
            return None
        return Program("joint", self.before.inputs, nodes, outputs)

    def _node(
        self,
        module: fx.GraphModule,
        node: fx.Node,
        converted: dict[fx.Node, Any],
        names: set[str],
        origins: dict[fx.Node, Origin],
    ) -> Node:
        old = self.node_of.get(node)
        if old is not None and (node.op == "placeholder" or self._is_as_it_was(node, converted)):
            return old
        new: Any = import_node(module, node, converted)
        if old is not None:
            return replace(new, name=old.name, origin=old.origin, val=old.val)
        return replace(new, name=_unused_name(free_name(node.name), names), origin=origins[node])

    def _is_as_it_was(self, node: fx.Node, converted: dict[fx.Node, Any]) -> bool:
        same = self.calls[node] == _call(node)
        return same and all(converted[source] is self.node_of.get(source) for source in node.all_input_nodes)

    def _origins(self, module: fx.GraphModule) -> dict[fx.Node, Origin]:
        """Return new nodes' origins: of the node that one replaces, of its readers, or of what it reads."""
        named = {node.name: node.origin for node in self.before.nodes}
        origins: dict[fx.Node, Origin | None] = {}
        new = [node for node in module.graph.nodes if node.op == "call_function" and node not in self.node_of]
        backward = self._backward(module)
        for node in reversed(new):
            own_origin = node.meta.get("aotlens_origin") or named.get(
                node.meta.get("custom", {}).get(MARK, "")
            )
            readers = (
                origins[user] for user in node.users if user in origins and backward[user] is backward[node]
            )
            origins[node] = own_origin or next(filter(None, readers), None)
        for node in new:
            crossed = [source for source in node.all_input_nodes if backward[source] is not backward[node]]
            gradient_of = next((origins[source] for source in crossed if source in origins), None)
            if node.target is operator.getitem and node.args[0] in origins:
                origins[node] = origins[node.args[0]]
            elif gradient_of is not None:  # of a new forward operator
                origins[node] = gradient_of
            sources = (origins.get(source) or self._known_origin(source) for source in node.all_input_nodes)
            origins[node] = origins[node] or next(filter(None, sources), None)
        return {node: _origin_on_side(origins[node], backward[node], node) for node in new}

    def _known_origin(self, node: fx.Node) -> Origin | None:
        old = self.node_of.get(node)
        return old.origin if old is not None and old.op is not None else None

    def _backward(self, module: fx.GraphModule) -> dict[fx.Node, bool]:
        """Return for each node whether it depends on a tangent or was recorded with the backward."""
        is_backward: dict[fx.Node, bool] = {}
        slots = {id(graph_input.node): graph_input.slot for graph_input in self.before.inputs}
        for node in module.graph.nodes:
            old = self.node_of.get(node)
            is_tangent = old is not None and isinstance(slots.get(id(old)), BACKWARD_INPUTS)
            recorded = old is not None and old.origin.backward
            is_backward[node] = (
                is_tangent or recorded or any(is_backward[source] for source in node.all_input_nodes)
            )
        return is_backward


def _origin_on_side(origin: Origin | None, backward: bool, node: fx.Node) -> Origin:
    """Return the origin of a new node in the forward or the backward."""
    base_origin = origin or Origin(NO_ORIGIN, op_name(node.target))  # type: ignore[arg-type]
    gradient_of = base_origin.differentiates or (None if base_origin.backward else base_origin)
    if not backward and base_origin.backward and base_origin.differentiates is not None:
        base_origin = base_origin.differentiates  # a forward value that was recorded with the backward
    return replace(
        base_origin,
        backward=backward,
        stage=STAGE,
        reason=REASON,
        effect=False,
        differentiates=gradient_of if backward else None,
    )


def _call(node: fx.Node) -> tuple[Any, Any, Any]:
    return node.target, node.args, node.kwargs


def _unused_name(name: str, names: set[str]) -> str:
    """Return the name, with a number if another node has it."""
    numbered = (f"{name}_{number}" for number in range(1, len(names) + 2))
    free = name if name not in names else next(candidate for candidate in numbered if candidate not in names)
    names.add(free)
    return free
