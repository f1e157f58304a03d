"""Nodes and programs: immutable values, shared between stages, and the lifetimes of values.

Invariant: no node or program changes after it is made.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from aotlens.ir.origin import Origin
from aotlens.ir.slots import GraphInput, GraphOutput


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Node:
    """One operation, or the value of one graph input or constant (`op` is then None)."""

    name: str
    op: Callable[..., Any] | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    val: Any
    """A fake tensor, a symbolic number, or a tuple of these for an operator with several results."""
    origin: Origin
    constant: Any = None
    """The real tensor behind a constant; None for everything else."""

    def __repr__(self) -> str:
        """Short: its arguments are nodes, so the whole would be as large as the graph, many times over."""
        return f"<{self.name}: {self.target or 'input'}>"

    @property
    def target(self) -> str:
        """The operator's printed name: `aten.mm.default`, `getitem`."""
        return op_name(self.op)

    @property
    def results(self) -> tuple[Any, ...]:
        """The values that it gives, one by one: a single one unless the operator gives several."""
        return tuple(self.val) if isinstance(self.val, (list, tuple)) else (self.val,)

    def inputs(self) -> Iterator["Node"]:
        """The nodes that this one reads, in argument order, repeats included."""
        yield from nodes_in(self.args)
        if self.kwargs:
            yield from nodes_in(self.kwargs.values())

    def bodies(self) -> tuple["Program", ...]:
        """The programs among the arguments of a higher-order operator; none for all others."""
        if not is_higher_order(self.op):
            return ()
        return tuple(programs_in((self.args, self.kwargs)))


@dataclass(frozen=True, slots=True)
class ProgramInput:
    node: Node
    slot: GraphInput


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    value: Any
    """A node, or a constant such as None."""
    slot: GraphOutput


@dataclass(frozen=True, slots=True)
class Program:
    """A graph: inputs, nodes in an order in which they can run, outputs."""

    name: str
    inputs: tuple[ProgramInput, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[ProgramOutput, ...]
    returns_single: bool = False
    """Whether a call gives the one output itself and not a tuple: some bodies of higher-order operators."""
    returns_list: bool = False
    """Whether a call gives a list and not a tuple, for an operator that tells the two apart."""

    def constants(self) -> tuple[Node, ...]:
        """The real tensors that the program and its bodies carry."""
        own = tuple(node for node in self.nodes if node.constant is not None)
        return own + tuple(node for body in self.bodies() for node in body.constants())

    def bodies(self) -> tuple["Program", ...]:
        """The programs that its higher-order operators run, each once, innermost not included."""
        unique = {id(body): body for node in self.nodes for body in node.bodies()}
        return tuple(unique.values())


def getitem(values: Any, index: int | str) -> Any:
    """One result of an operator that gives several."""
    return values[index]


class TableIndex(int):
    """An index into a table of this process (torch's Triton kernels), which means nothing in another one."""


def op_name(op: Callable[..., Any] | None) -> str:
    if op is None:
        return ""
    namespace = getattr(op, "namespace", None)
    if namespace is not None:
        return str(op)
    return getattr(op, "__name__", str(op))


def computed_by(node: Node) -> Node:
    """The node whose operator gives a value: that of which it is an item, or an item's item."""
    while node.op is getitem:
        node = node.args[0]
    return node


def nodes_in(values: Iterable[Any]) -> Iterator[Node]:
    """Every node inside nested lists and tuples of arguments."""
    for value in values:
        if type(value) is Node:
            yield value
        elif isinstance(value, (list, tuple)):
            yield from nodes_in(value)
        elif type(value) is dict:
            yield from nodes_in(value.values())
        elif type(value) is slice:
            yield from nodes_in((value.start, value.stop, value.step))


def programs_in(value: Any) -> Iterator[Program]:
    """Every program inside nested arguments."""
    if type(value) is Program:
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from programs_in(item)
    elif type(value) is dict:
        yield from programs_in(list(value.values()))


def is_higher_order(op: Any) -> bool:
    """Whether an operator takes functions."""
    return getattr(op, "namespace", None) == "higher_order"


def map_nodes(value: Any, change: Callable[[Node], Any], body: Callable[[Program], Any] | None = None) -> Any:
    """Nested arguments with each node replaced by `change(node)`, each program by `body(program)`."""
    if type(value) is Node:
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([map_nodes(item, change, body) for item in value])
    if type(value) is dict:
        return {key: map_nodes(item, change, body) for key, item in value.items()}
    if body is not None and type(value) is Program:
        return body(value)
    return value


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same containers with every leaf changed."""
    if isinstance(value, (list, tuple)):
        items = [map_leaves(item, change) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {key: map_leaves(item, change) for key, item in value.items()}
    return change(value)


def ancestors(outputs: Iterable[object], nodes: tuple[Node, ...], effects: bool = False) -> set[int]:
    """Identities of the nodes that the outputs are computed from."""
    needed = {id(node) for node in nodes_in(outputs)}
    for node in reversed(nodes):
        if id(node) in needed or (effects and must_run(node)):
            needed.add(id(node))
            needed.update(id(source) for source in node.inputs())
    return needed


def reachable(outputs: Iterable[Any], nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nodes that the outputs need, and those that run although nobody reads them, in program order."""
    needed = ancestors(outputs, nodes, effects=True)
    return tuple(node for node in nodes if id(node) in needed)


def has_effect(node: Node) -> bool:
    """Whether the node does something that is seen outside of its value: it writes to an input, or prints."""
    return node.origin.effect


def without_backward_effects(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The nodes without those that the backward runs for what they do outside of their value."""
    return tuple(node for node in nodes if not (node.origin.effect and node.origin.backward))


def writes_input(node: Node) -> bool:
    """Whether the node puts an input's new value into the caller's tensor: a final `copy_`."""
    return node.origin.effect and node.op is torch.ops.aten.copy_.default


RANDOM_OPS = frozenset({"graphsafe_run_with_rng_state", "run_and_save_rng_state", "run_dtensor_rng_op"})
"""Higher-order operators that run a random operator and leave the generator moved."""


@cache
def is_random_op(op: Any) -> bool:
    """Whether an operator moves the random state; one that is a function of a seed and an offset does not."""
    if is_higher_order(op):
        return op.name() in RANDOM_OPS
    is_pure = getattr(op, "namespace", "") == "rngprims"
    return not is_pure and torch.Tag.nondeterministic_seeded in getattr(op, "tags", ())


DROPOUT_ARGUMENTS = ("dropout_p", "dropout")
"""Arguments of fused operators that draw only where these are above zero."""


def is_random_node(node: Node) -> bool:
    """Whether the node moves the random state, by itself or in a function among its arguments."""
    within = (inner for body in node.bodies() for inner in body.nodes)
    return (is_random_op(node.op) and not is_dropout_disabled(node)) or any(map(is_random_node, within))


def is_dropout_disabled(node: Node) -> bool:
    """Whether a fused operator is told to drop nothing."""
    schema: Any = getattr(node.op, "_schema", None)
    for position, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.name in DROPOUT_ARGUMENTS:
            left_out = node.kwargs.get(argument.name, argument.default_value)
            return bool((node.args[position] if position < len(node.args) else left_out) == 0)
    return False


def must_run(node: Node) -> bool:
    """Whether the node runs although nobody reads it: a draw that nobody uses moves the next one."""
    return has_effect(node) or (not node.origin.backward and is_random_node(node))


def last_uses(program: Program, held: Iterable[Node] = ()) -> dict[int, tuple[Node, ...]]:
    """By node position: the values that nobody reads after it, so that their memory is given back.

    Outputs stay, and what the caller has `held`; a value that nobody reads goes at once.
    """
    kept_alive = {id(output.value) for output in program.outputs} | {id(node) for node in held}
    last: dict[int, int] = {}
    by_id: dict[int, Node] = {id(graph_input.node): graph_input.node for graph_input in program.inputs}
    for position, node in enumerate(program.nodes):
        by_id[id(node)] = node
        for source in node.inputs():
            last[id(source)] = position
    for position, node in enumerate(program.nodes):
        last.setdefault(id(node), position)
    dead: dict[int, list[Node]] = {}
    for identity, position in last.items():
        gone = by_id.get(identity)
        if gone is not None and identity not in kept_alive and gone.constant is None:
            dead.setdefault(position, []).append(gone)
    return {position: tuple(nodes) for position, nodes in dead.items()}
