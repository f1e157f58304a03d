"""Nodes and programs: immutable values, shared between stages, and the lifetimes of values.

Invariant: no node or program changes after it is made.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
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
    """The real tensor of a constant; None for everything else."""

    def __repr__(self) -> str:
        """Return a short text: the arguments are nodes, so a full one would repeat the graph many times."""
        return f"<{self.name}: {self.target or 'input'}>"

    @property
    def target(self) -> str:
        """The operator's printed name: `aten.mm.default`, `getitem`."""
        return op_name(self.op)

    @property
    def results(self) -> tuple[Any, ...]:
        """The values of the node: one, unless the operator returns several."""
        return tuple(self.val) if isinstance(self.val, (list, tuple)) else (self.val,)

    def inputs(self) -> Iterator["Node"]:
        """Yield the nodes that this one reads, in argument order, with repetitions."""
        yield from nodes_in(self.args)
        if self.kwargs:
            yield from nodes_in(self.kwargs.values())

    def subgraphs(self) -> tuple["Program", ...]:
        """Return the subgraphs among the arguments of a higher-order operator; none for all others."""
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
    """Whether a call returns the one output itself and not a tuple: some subgraphs do."""
    returns_list: bool = False
    """Whether a call returns a list and not a tuple, for an operator that distinguishes them."""

    def inputs_of(self, *kinds: type) -> tuple[ProgramInput, ...]:
        """Return the inputs whose slots are of one of these kinds, in order."""
        return tuple(item for item in self.inputs if isinstance(item.slot, kinds))

    def inputs_except(self, *kinds: type) -> tuple[ProgramInput, ...]:
        """Return the inputs whose slots are of none of these kinds, in order."""
        return tuple(item for item in self.inputs if not isinstance(item.slot, kinds))

    def outputs_of(self, *kinds: type) -> tuple[ProgramOutput, ...]:
        """Return the outputs whose slots are of one of these kinds, in order."""
        return tuple(out for out in self.outputs if isinstance(out.slot, kinds))

    def constants(self) -> tuple[Node, ...]:
        """Return the real tensors in the program and its subgraphs."""
        top_level = tuple(node for node in self.nodes if node.constant is not None)
        return top_level + tuple(node for subgraph in self.subgraphs() for node in subgraph.constants())

    def subgraphs(self) -> tuple["Program", ...]:
        """Return the subgraphs of its higher-order operators, each once, without nested ones."""
        unique = {id(subgraph): subgraph for node in self.nodes for subgraph in node.subgraphs()}
        return tuple(unique.values())


def getitem(values: Any, index: int | str) -> Any:
    """Return one output of an operator that has several."""
    return values[index]


class TableIndex(int):
    """An index into a table of this process (torch's Triton kernels), meaningless in another process."""


def op_name(op: Callable[..., Any] | None) -> str:
    if op is None:
        return ""
    namespace = getattr(op, "namespace", None)
    if namespace is not None:
        return str(op)
    return getattr(op, "__name__", str(op))


def computed_by(node: Node) -> Node:
    """Return the node whose operator computes a value, through any number of `getitem`."""
    while node.op is getitem:
        node = node.args[0]
    return node


def nodes_in(values: Iterable[Any]) -> Iterator[Node]:
    """Yield every node inside nested lists and tuples of arguments."""
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
    """Yield every program inside nested arguments."""
    if type(value) is Program:
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from programs_in(item)
    elif type(value) is dict:
        yield from programs_in(list(value.values()))


def is_higher_order(op: Any) -> bool:
    """Return True if an operator takes functions."""
    return getattr(op, "namespace", None) == "higher_order"


def map_nodes(
    value: Any, change: Callable[[Node], Any], change_program: Callable[[Program], Any] | None = None
) -> Any:
    """Return nested arguments with `change` applied to nodes and `change_program` to programs."""
    if type(value) is Node:
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([map_nodes(item, change, change_program) for item in value])
    if type(value) is dict:
        return {key: map_nodes(item, change, change_program) for key, item in value.items()}
    if change_program is not None and type(value) is Program:
        return change_program(value)
    return value


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same containers with every leaf changed."""
    if isinstance(value, (list, tuple)):
        items = [map_leaves(item, change) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {key: map_leaves(item, change) for key, item in value.items()}
    return change(value)


def ancestors(outputs: Iterable[object], nodes: tuple[Node, ...], effects: bool = False) -> set[int]:
    """Return the identities of the nodes that the outputs are computed from."""
    needed = {id(node) for node in nodes_in(outputs)}
    for node in reversed(nodes):
        if id(node) in needed or (effects and must_run(node)):
            needed.add(id(node))
            needed.update(id(source) for source in node.inputs())
    return needed


def reachable(outputs: Iterable[Any], nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return, in program order, the nodes that the outputs need and those that must run in any case."""
    needed = ancestors(outputs, nodes, effects=True)
    return tuple(node for node in nodes if id(node) in needed)


def has_effect(node: Node) -> bool:
    """Return True if the node does more than compute its value: it writes to an input, or prints."""
    return node.origin.effect


def without_backward_effects(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes without those that the backward runs only for their effect."""
    return tuple(node for node in nodes if not (node.origin.effect and node.origin.backward))


def writes_input(node: Node) -> bool:
    """Return True if the node writes an input's new value to the caller's tensor: a final `copy_`."""
    return node.origin.effect and node.op is torch.ops.aten.copy_.default


RANDOM_OPS = frozenset({"graphsafe_run_with_rng_state", "run_and_save_rng_state", "run_dtensor_rng_op"})
"""Higher-order operators that run a random op and advance the RNG state."""


@cache
def is_random_op(op: Any) -> bool:
    """Return True if an operator advances the RNG state; a function of seed and offset does not."""
    if is_higher_order(op):
        return op.name() in RANDOM_OPS
    is_pure = getattr(op, "namespace", "") == "rngprims"
    return not is_pure and torch.Tag.nondeterministic_seeded in getattr(op, "tags", ())


DROPOUT_ARGUMENTS = ("dropout_p", "dropout")
"""Arguments of fused operators that use random numbers only if the argument is above zero."""


def is_random_node(node: Node) -> bool:
    """Return True if the node advances the RNG state, by itself or in a subgraph."""
    within = (inner for subgraph in node.subgraphs() for inner in subgraph.nodes)
    return (is_random_op(node.op) and not is_dropout_disabled(node)) or any(map(is_random_node, within))


def is_dropout_disabled(node: Node) -> bool:
    """Return True if a fused operator has dropout probability zero."""
    schema: Any = getattr(node.op, "_schema", None)
    for position, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.name in DROPOUT_ARGUMENTS:
            default = node.kwargs.get(argument.name, argument.default_value)
            return bool((node.args[position] if position < len(node.args) else default) == 0)
    return False


def must_run(node: Node) -> bool:
    """Return True if the node must run even if nothing reads it: an effect, or an RNG state advance."""
    return has_effect(node) or (not node.origin.backward and is_random_node(node))


def last_uses(program: Program, held: Iterable[Node] = ()) -> dict[int, tuple[Node, ...]]:
    """Return by node position the values that nothing reads afterwards, whose memory can be freed.

    Outputs, and what the caller has `held`, stay; a value that nothing reads is freed at once.
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
        value = by_id.get(identity)
        if value is not None and identity not in kept_alive and value.constant is None:
            dead.setdefault(position, []).append(value)
    return {position: tuple(nodes) for position, nodes in dead.items()}


def with_replaced_values(
    nodes: Iterable[Node], swaps: dict[int, Node]
) -> tuple[tuple[Node, ...], dict[int, Node]]:
    """Replace values in a list of nodes; return the new nodes and all replacements, including those that
    follow.

    A node that reads a replaced value becomes a new node of the same name; so does a replacement in the list.
    """
    if not swaps:
        return tuple(nodes), {}
    replacements, replaced = dict(swaps), []

    def change(node: Node) -> Node:
        return replacements.get(id(node), node)

    for node in nodes:
        current = change(node)
        if any(id(source) in replacements for source in current.inputs()):
            args, kwargs = map_nodes(current.args, change), map_nodes(current.kwargs, change)
            current = replacements[id(node)] = replace(current, args=args, kwargs=kwargs)
        replaced.append(current)
    return tuple(replaced), replacements
