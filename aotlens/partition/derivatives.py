"""Programs for derivatives of the backward (double backward), from values that the backward saves anyway.

Invariant: nothing is saved for a derivative. It reads what the first backward reads, the inputs that the
caller still holds, and the tangents; a value that cannot be computed from these is an error that names it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, ops

from aotlens.ir.program import (
    Node,
    Program,
    ProgramInput,
    ProgramOutput,
    has_effect,
    is_random_node,
    map_nodes,
    with_replaced_values,
)
from aotlens.ir.slots import RNG_STATES, Gradient, SavedInput, Tangent
from aotlens.partition.records import Partitioned
from aotlens.partition.saved_tensor_hooks import unpacked_values, unpacking_nodes
from aotlens.unsupported import unsupported

aten = ops.aten


def available_nodes(parts: Partitioned) -> tuple[Node, ...]:
    """Return what the backward gets from the forward, then every other input that is not mutated."""
    changed = parts.joint.changed_inputs
    inputs = [
        node
        for captured_input in parts.joint.captured.inputs
        if captured_input.is_graph_input
        for node in captured_input.nodes
        if id(node) not in changed
    ]
    saved = [item.node for item in recorded_inputs(parts) if isinstance(item.slot, SavedInput)]
    return tuple(dict.fromkeys([*saved, *inputs]))


def recorded_inputs(parts: Partitioned) -> tuple[ProgramInput, ...]:
    """Return the backward's inputs as nodes of the recording; none in inference."""
    recorded, inputs = _recorded_nodes(parts), parts.backward.inputs if parts.backward is not None else ()
    return tuple(replace(item, node=recorded.get(item.node.name, item.node)) for item in inputs)


def _recorded_nodes(parts: Partitioned) -> dict[str, Node]:
    """Return the recorded nodes by name, where a pass or the user's partition function replaced the joint
    graph."""
    if parts.modules is not None:
        nodes = parts.joint.recorded.nodes
        known = {id(node.val): node for node in nodes if isinstance(node.val, Tensor)}
        saved = (program_input.node for program_input in parts.saved_inputs)
        return {node.name: known[id(node.val)] for node in saved if id(node.val) in known}
    before = parts.joint.before_passes
    return {} if before is None else {node.name: node for node in before.nodes}


def derivative_program(
    parts: Partitioned,
    name: str,
    tangents: Sequence[Node | None],
    wanted: Sequence[Node | None],
    available: Sequence[Node] | None = None,
) -> Program:
    """Return a program that computes `wanted` (or None) from `available`, or from `available_nodes`.

    Raises:
        UnsupportedError: a value is needed that is not saved.
    """
    nodes_so_far = tuple(parts.joint.builder.nodes)  # with the derivative's, recorded since
    incoming = [node for node in tangents if node is not None]
    available = available_nodes(parts) if available is None else available
    available_ids = {id(node) for node in (*available, *incoming)}
    swaps, unpacking = unpacked_values(parts.packing), unpacking_nodes(parts.packing)
    first = {id(node) for node in unpacking}
    find, instead = _EquivalentValues(nodes_so_far, (*available, *incoming)), dict[int, Node]()
    needed: set[int] = set()
    waiting = [swaps.get(id(node), node) for node in wanted if node is not None]
    while waiting:
        node = waiting.pop()
        if id(node) in needed or id(node) in instead:
            continue
        if id(node) not in available_ids and (equivalent := find.find(node)) is not None:
            instead[id(node)] = swaps.get(id(equivalent), equivalent)
            waiting.append(instead[id(node)])
            continue
        needed.add(id(node))
        if id(node) not in available_ids:
            _reject_unavailable(parts, node)
            other = {} if id(node) in first else swaps
            waiting.extend(other.get(id(source), source) for source in node.inputs())
    inputs = [ProgramInput(node, SavedInput(node.name)) for node in available if id(node) in needed]
    inputs += [ProgramInput(node, Tangent(node.name)) for node in incoming if id(node) in needed]
    own = [node for node in nodes_so_far if id(node) in needed - available_ids - first]
    nodes, swaps = with_replaced_values(own, swaps | instead)
    nodes = (
        *(node for node in unpacking if id(node) in needed),
        *find.added_sizes,
        *nodes,
    )
    outputs = tuple(
        ProgramOutput(swaps.get(id(node), node), Gradient(f"gradient_{index}", index))
        for index, node in enumerate(wanted)
    )
    return Program(name, tuple(inputs), nodes, outputs)


def positions_read(program: Program, nodes: Sequence[Node | None]) -> list[int]:
    """Return the position of each of the program's inputs among these nodes."""
    positions = {id(node): index for index, node in enumerate(nodes)}
    return [positions[id(graph_input.node)] for graph_input in program.inputs]


class _EquivalentValues:
    """Finds an available value that equals one that is not available."""

    def __init__(self, nodes: Sequence[Node], known: Sequence[Node]) -> None:
        self._known = known
        self._number: dict[int, Any] = {}
        """By identity: a number that values share which are computed in the same way."""
        self._first: dict[str, int] = {}
        """The identity of the first value that is computed in a given way."""
        self.added_sizes: list[Node] = []
        """Sizes read from other tensors, instead of from inputs that are not available."""
        for node in nodes:
            self._number[id(node)] = self._numbering(node)
        self._by_number = {self._number.get(id(node)): node for node in known if id(node) in self._number}

    def find(self, node: Node) -> Node | None:
        """Return an available value that is computed in the same way, or the same size read from another
        tensor; None if there is none."""
        equivalent = self._by_number.get(self._number.get(id(node), node))
        if equivalent is not None or node.op is not aten.sym_size.int:
            return equivalent
        if node.args[0].op is not None or node.args[0] in self._known or node in self.added_sizes:
            return None
        for other in self._known:
            sizes = other.val.shape if isinstance(other.val, Tensor) else (other.val,)
            for dim, size in enumerate(sizes):
                if str(size) == str(node.val):
                    if not isinstance(other.val, Tensor):
                        return other
                    self.added_sizes.append(replace(node, args=(other, dim)))
                    return self.added_sizes[-1]
        return None

    def _numbering(self, node: Node) -> Any:
        if node.op is None or node.subgraphs() or has_effect(node) or is_random_node(node):
            return id(node)
        number = lambda source: ("node", self._number.get(id(source), id(source)))
        how = repr((id(node.op), map_nodes((node.args, node.kwargs), number)))
        return self._first.setdefault(how, id(node))


def _reject_unavailable(parts: Partitioned, node: Node) -> None:
    """Raise UnsupportedError for a value that runs once and is not saved, or that an input had before a
    mutation."""
    if any(node is item.node for item in parts.joint.program.inputs_of(*RNG_STATES)):
        case = "it recomputes random numbers, from an RNG state that the backward does not save"
    elif node.op is None and node.constant is None:
        names = {
            id(own): captured_input.slot.name
            for captured_input in parts.joint.captured.inputs
            for own in captured_input.nodes
        }
        name = names.get(id(node), node.name)
        changed = id(node) in parts.joint.changed_inputs
        value = f"the value of `{name}` before it was written to" if changed else f"the value of `{name}`"
        case = f"it needs {value}, which the backward does not save"
    elif is_random_node(node):
        case = f"it needs the random numbers of `{node.target}`, which the backward does not save"
    elif has_effect(node):
        case = f"it needs the output of `{node.target}`, which runs once"
    else:
        return
    hint = "the policy `default` saves what autograd saves" if parts.policy != "default" else ""
    raise unsupported("lost-for-derivative", node.origin.location.innermost, reason=case, advice=hint)
