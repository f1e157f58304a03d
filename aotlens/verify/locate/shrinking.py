"""Delta debugging over a program: search the fewest operators and outputs that still differ from eager.

Invariant: every candidate is a whole program with values for its inputs.  A removed operator becomes an input
with its recorded value, so that the operators before it can be removed too.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput, map_nodes, nodes_in
from aotlens.ir.slots import UserInput, UserOutput


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A program with the values of its inputs."""

    program: Program
    values: tuple[Any, ...]
    """One per input; tensors that need a gradient require it."""


Wrong = Callable[[Candidate], bool]
"""Return True if a candidate differs from eager in the same way as the whole program."""


def candidate_of(
    program: Program, values: Mapping[str, Any], arguments: list[Any], needs_gradient: Collection[str]
) -> Candidate:
    """Return the whole program with constants as inputs; `values` holds the value of each node by name."""
    input_values = {item.node.name: value for item, value in zip(program.inputs, arguments, strict=True)}
    input_values |= {node.name: node.constant for node in program.constants()}
    constants = [ProgramInput(node, UserInput(node.name, 0)) for node in program.constants()]
    inputs = _numbered([*program.inputs, *constants])
    nodes = tuple(node for node in program.nodes if node.constant is None)
    outputs = tuple(
        ProgramOutput(out.value, UserOutput("out", index)) for index, out in enumerate(program.outputs)
    )
    whole = replace(program, inputs=inputs, nodes=nodes, outputs=outputs)
    return Candidate(
        whole, tuple(_leaf(input_values[i.node.name], i.node.name in needs_gradient) for i in inputs)
    )


def shrink_program(whole: Candidate, recorded: Mapping[str, Any], is_wrong: Wrong) -> Candidate:
    """Return the smallest candidate found; `recorded` holds the value of each node of the whole program."""
    smallest = _with_earliest_result(_with_one_result(whole, is_wrong), recorded, is_wrong)
    before = -1
    while len(smallest.program.nodes) != before:
        before = len(smallest.program.nodes)
        smallest = _with_fewer_nodes(smallest, recorded, is_wrong)
    return smallest


def _with_one_result(whole: Candidate, is_wrong: Wrong) -> Candidate:
    outputs = whole.program.outputs
    for out in outputs if len(outputs) > 1 else ():
        smaller = _pruned(whole, replace(whole.program, outputs=(out,)), {})
        if is_wrong(smaller):
            return smaller
    return whole


def _with_earliest_result(start: Candidate, recorded: Mapping[str, Any], is_wrong: Wrong) -> Candidate:
    """Search, by bisection, the first operator that differs as the only output.

    An operator after it that agrees by chance only makes the candidate longer.
    """
    nodes = [node for node in start.program.nodes if isinstance(recorded.get(node.name), Tensor)]
    smallest, low, high = start, 0, len(nodes) - 1
    while low <= high:
        middle = (low + high) // 2
        end = start.program.nodes.index(nodes[middle]) + 1
        output = ProgramOutput(nodes[middle], UserOutput("out", 0))
        program = replace(start.program, nodes=start.program.nodes[:end], outputs=(output,))
        smaller = _pruned(start, program, {})
        if is_wrong(smaller):
            smallest, high = smaller, middle - 1
        else:
            low = middle + 1
    return smallest


def _with_fewer_nodes(start: Candidate, recorded: Mapping[str, Any], is_wrong: Wrong) -> Candidate:
    """Remove runs of operators, from half of them down to single ones."""
    smallest, size = start, max(len(start.program.nodes) // 2, 1)
    while True:
        index = 0
        while index < len(smallest.program.nodes) and len(smallest.program.nodes) > 1:
            gone = smallest.program.nodes[index : index + size]
            smaller = _without(smallest, gone, recorded)
            if smaller is not None and is_wrong(smaller):
                smallest = smaller
            else:
                index += size
        if size == 1:
            return smallest
        size = max(size // 2, 1)


def _without(
    start: Candidate, nodes_to_remove: tuple[Node, ...], recorded: Mapping[str, Any]
) -> Candidate | None:
    """Return the program without these operators; None if one of their values cannot be an input."""
    removed = {id(node) for node in nodes_to_remove}
    remaining = [node for node in start.program.nodes if id(node) not in removed]
    read = {id(node) for other in remaining for node in other.inputs()}
    read |= {id(node) for node in nodes_in(out.value for out in start.program.outputs)}
    needed = [node for node in nodes_to_remove if id(node) in read]
    if not remaining or not all(isinstance(recorded.get(node.name), Tensor) for node in needed):
        return None
    replacements = {id(node): Node(node.name, None, (), {}, node.val, node.origin) for node in needed}

    def replaced(source: Node) -> Node:
        return replacements.get(id(source), source)

    nodes = []
    for node in remaining:
        args, kwargs = map_nodes(node.args, replaced), map_nodes(node.kwargs, replaced)
        replacements[id(node)] = replace(node, args=args, kwargs=kwargs)
        nodes.append(replacements[id(node)])
    outputs = tuple(replace(out, value=map_nodes(out.value, replaced)) for out in start.program.outputs)
    new = tuple(ProgramInput(replacements[id(node)], UserInput(node.name, 0)) for node in needed)
    program = replace(
        start.program, inputs=(*start.program.inputs, *new), nodes=tuple(nodes), outputs=outputs
    )
    trained = any(isinstance(value, Tensor) and value.requires_grad for value in start.values)
    return _pruned(start, program, {node.name: _leaf(recorded[node.name], trained) for node in needed})


def _pruned(start: Candidate, program: Program, new: Mapping[str, Any]) -> Candidate:
    """Return the candidate without unused inputs."""
    known = {
        program_input.node.name: value
        for program_input, value in zip(start.program.inputs, start.values, strict=True)
    }
    known |= new
    read = {id(node) for other in program.nodes for node in other.inputs()}
    read |= {id(node) for node in nodes_in(out.value for out in program.outputs)}
    inputs = _numbered([program_input for program_input in program.inputs if id(program_input.node) in read])
    values = tuple(known[program_input.node.name] for program_input in inputs)
    return Candidate(replace(program, inputs=inputs), values)


def _numbered(inputs: list[ProgramInput]) -> tuple[ProgramInput, ...]:
    return tuple(
        ProgramInput(program_input.node, UserInput(program_input.node.name, index))
        for index, program_input in enumerate(inputs)
    )


def _leaf(value: Any, needs_gradient: bool) -> Any:
    if not isinstance(value, Tensor):
        return value
    is_float = value.is_floating_point() or value.is_complex()
    return value.detach().clone().requires_grad_(needs_gradient and is_float)
