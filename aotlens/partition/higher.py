"""The program of a derivative of the backward: from what the backward keeps anyway, to the gradients.

Invariant: nothing is saved for it.  It reads what the first backward reads, the inputs that the caller still
holds, and the gradients that arrive; what cannot be computed from these is refused by name.
"""

from collections.abc import Sequence

from torch import Tensor

from aotlens.errors import UnsupportedError
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput, has_effect, is_draw
from aotlens.ir.slots import RNG_STATES, Gradient, SavedInput, Tangent
from aotlens.partition.packing import swapped, unpacked_values, unpacking_nodes
from aotlens.partition.records import Partitioned


def kept_nodes(parts: Partitioned) -> tuple[Node, ...]:
    """What the backward gets from the forward, then every other input that keeps its value."""
    changed = parts.joint.changed_inputs
    inputs = [
        node
        for given in parts.joint.captured.inputs
        if given.is_graph_input and given.duplicate_of is None
        for node in given.nodes
        if id(node) not in changed
    ]
    recorded = recorded_nodes(parts)
    saved = [recorded.get(given.node.name, given.node) for given in parts.saved_inputs]
    return tuple(dict.fromkeys([*saved, *inputs]))


def recorded_nodes(parts: Partitioned) -> dict[str, Node]:
    """The recording's nodes by name, where a pass changed the joint graph, which leaves a value its name, or
    a function of the user's divided it, which leaves a value what it is in the recording."""
    if parts.modules is not None:
        nodes = parts.joint.captured.recorder.nodes
        known = {id(node.val): node for node in nodes if isinstance(node.val, Tensor)}
        saved = (given.node for given in parts.saved_inputs)
        return {node.name: known[id(node.val)] for node in saved if id(node.val) in known}
    before = parts.joint.recorded
    return {} if before is None else {node.name: node for node in before.nodes}


def derivative_program(
    parts: Partitioned,
    name: str,
    tangents: Sequence[Node | None],
    wanted: Sequence[Node | None],
    kept: Sequence[Node] | None = None,
) -> Program:
    """The program that gives the wanted nodes, with None for None, from `kept` (by itself `kept_nodes`).

    Raises:
        UnsupportedError: a value is needed that nothing keeps.
    """
    recorder = parts.joint.captured.recorder
    arriving = [node for node in tangents if node is not None]
    kept = kept_nodes(parts) if kept is None else kept
    given = {id(node) for node in (*kept, *arriving)}
    swaps, unpacking = unpacked_values(parts.packing), unpacking_nodes(parts.packing)
    first = {id(node) for node in unpacking}
    needed: set[int] = set()
    waiting = [swaps.get(id(node), node) for node in wanted if node is not None]
    while waiting:
        node = waiting.pop()
        if id(node) in needed:
            continue
        needed.add(id(node))
        if id(node) not in given:
            _refuse_lost(parts, node)
            other = {} if id(node) in first else swaps
            waiting.extend(other.get(id(source), source) for source in node.inputs())
    inputs = [ProgramInput(node, SavedInput(node.name)) for node in kept if id(node) in needed]
    inputs += [ProgramInput(node, Tangent(node.name)) for node in arriving if id(node) in needed]
    own = [node for node in recorder.nodes if id(node) in needed - given - first]
    nodes, swaps = swapped(own, swaps)
    nodes = (*(node for node in unpacking if id(node) in needed), *nodes)
    outputs = tuple(
        ProgramOutput(swaps.get(id(node), node), Gradient(f"gradient_{at}", at))
        for at, node in enumerate(wanted)
    )
    return Program(name, tuple(inputs), nodes, outputs)


def _refuse_lost(parts: Partitioned, node: Node) -> None:
    """What ran once and is not kept, or is what an input was before the function wrote to it."""
    if any(node is given.node for given in parts.joint.program.inputs if isinstance(given.slot, RNG_STATES)):
        case = "it draws random numbers again, from a state that the backward does not keep"
    elif node.op is None and node.constant is None:
        names = {id(own): given.slot.name for given in parts.joint.captured.inputs for own in given.nodes}
        name = names.get(id(node), node.name)
        case = (
            f"it needs the value that `{name}` had before it was written to, which the backward does not keep"
        )
    elif is_draw(node):
        case = f"it needs the random numbers of `{node.target}`, which the backward does not keep"
    elif has_effect(node):
        case = f"it needs the result of `{node.target}`, which runs once"
    else:
        return
    hint = "the policy `default` keeps what autograd keeps" if parts.policy != "default" else ""
    raise UnsupportedError(case, node.origin.place.innermost, hint)
