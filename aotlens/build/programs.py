"""The stages of one target as programs that run, each with the ancestors of its nodes.

Invariant: everything here is built on first use; a stage that changes nothing holds the program of the stage
before and says so.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from aotlens.build.captured import CapturedProgram, bookkeeping, called_program, changes_sizes
from aotlens.build.replay import replay, written_inputs
from aotlens.build.subclasses import has_wrappers, wrapped_program
from aotlens.capture.records import Captured
from aotlens.capture.subclasses import inner_tensors
from aotlens.ir.origin import Origin
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput, ancestors, getitem
from aotlens.ir.slots import UserOutput, inner_slot, outer_slot
from aotlens.ir.subclasses import leaves_of
from aotlens.partition.records import Partitioned

Ancestors = Callable[[Node], tuple[str, ...]]
"""Returns the names, in the parent stage, of a node's origins."""


@dataclass(frozen=True, slots=True)
class StageProgram:
    """One stage of the pipeline."""

    name: str
    parent: str | None
    """The stage that it was made from; None for the first."""
    program: Program
    ancestors: Ancestors
    same_as: str | None = None
    """The earlier stage with the same program, where this stage changed nothing."""


def stage_programs(parts: Partitioned) -> tuple[StageProgram, ...]:
    """Captured, desugared, functional and decomposed; then joint, forward and backward, or inference."""
    values, functional, decomposed = _pure_programs(parts)
    first, second, called = _called_programs(parts.joint.captured, values)
    third = StageProgram("functional", "desugared", functional, related(functional, called.program, called))
    fourth = unchanged("decomposed", third)
    if decomposed is not functional:
        fourth = StageProgram("decomposed", "functional", decomposed, related(decomposed, functional))
    stages = [first, second, third, fourth]
    if parts.backward is None:
        last = StageProgram("inference", "decomposed", parts.forward, related(parts.forward, decomposed))
        return (*stages, last)
    joint = parts.joint.before_passes or parts.joint.program
    stages.append(StageProgram("joint", "decomposed", joint, related(joint, decomposed)))
    if parts.joint.before_passes is not None:
        changed = parts.joint.program
        stages.append(StageProgram("joint_passes", "joint", changed, related(changed, joint)))
        joint = changed
    sides = (parts.forward, parts.backward)
    parent = stages[-1].name
    return (*stages, *(StageProgram(side.name, parent, side, related(side, joint)) for side in sides))


def unchanged(name: str, parent: StageProgram) -> StageProgram:
    """Return a stage that changes nothing for this target."""
    same = lambda node: (node.name,)
    return StageProgram(name, parent.name, parent.program, same, parent.same_as or parent.name)


def _called_programs(
    captured: Captured, values: tuple[Any, ...]
) -> tuple[StageProgram, StageProgram, CapturedProgram]:
    """Return the user's calls on wrappers and on their inner tensors, and the origins of the latter."""
    if not has_wrappers(captured):
        called = called_program(captured, values, "captured")
        first = StageProgram("captured", None, called.program, lambda node: ())
        return first, unchanged("desugared", first), called
    wrapped, whose = wrapped_program(captured, values)
    called = called_program(captured, values, "desugared")
    outer = lambda node: whose.get(id(original := called.original(node)), original)
    first = StageProgram("captured", None, wrapped.program, lambda node: ())
    ancestors = related(called.program, wrapped.program, wrapped, outer)
    return first, StageProgram("desugared", "captured", called.program, ancestors), called


def _pure_programs(parts: Partitioned) -> tuple[tuple[Any, ...], Program, Program]:
    """Return the calls' original results, and the pure function before and after decomposition.

    The recording is that function unless it is out of date. Only a replay shows what came before
    decompositions, and the results with the sizes that they had before a metadata mutation.
    """
    captured, meta = parts.joint.captured, parts.joint.meta
    first = parts.joint.recorded
    without = _unread_origins(captured)
    recorded = None if _out_of_date(parts) else _recorded(parts, without)
    if recorded is not None and not first.decomposed and not changes_sizes(captured):
        return tuple(call.result for call in captured.calls), recorded, recorded
    replayed = replay(captured, meta, "functional", {}, without)
    if not first.decomposed:
        functional = recorded if recorded is not None else replayed.program
        return replayed.values, functional, functional
    if recorded is None:
        recorded = replay(captured, meta, "decomposed", first.decompositions, without).program
    return replayed.values, replayed.program, replace(recorded, name="decomposed")


def _unread_origins(captured: Captured) -> frozenset[int]:
    """Return the origins, by identity, whose calls are all autograd's own and repeat no earlier call."""
    unread = bookkeeping(captured, captured.calls)
    needed = {
        id(call.origin) for index, call in enumerate(captured.calls) if unread.get(index, index) is not None
    }
    return frozenset(id(captured.calls[index].origin) for index in unread) - needed


def _out_of_date(parts: Partitioned) -> bool:
    """Return True if a result must be read again after a write, which only another recording can do."""
    recorded = parts.joint.recorded
    results = [inner for value in parts.joint.captured.outputs for _, inner in inner_tensors(value)]
    states = [recorded.tracked(value) for value in results if isinstance(value, torch.Tensor)]
    return not all(state.is_current for state in states)


def _recorded(parts: Partitioned, without: frozenset[int]) -> Program:
    """Return the forward of the recording as a pure function: new values of mutated inputs, then all results.

    Calls of these origins, by identity, are left out.
    """
    captured, meta = parts.joint.captured, parts.joint.meta
    outputs = [
        ProgramOutput(value, inner_slot(slot, path))
        for info, slot in written_inputs(captured, meta)
        for path, value in leaves_of(info.value)
    ]
    for info, name in zip(meta.outputs, captured.output_names, strict=False):
        for path, tensor in inner_tensors(info.tensor):
            value = info.value
            if isinstance(tensor, torch.Tensor):
                value = parts.joint.recorded.tracked(tensor).node
            outputs.append(ProgramOutput(value, inner_slot(UserOutput(name, info.index), path)))
    nodes = tuple(n for n in parts.joint.recorded.nodes if not n.origin.backward and not _written_back(n))
    recorded = [  # dead ones too: the user wrote them
        node for node in nodes if node.origin.stage == "captured" and id(node.origin) not in without
    ]
    needed = ancestors([*recorded, *(out.value for out in outputs)], nodes)
    needed_nodes = tuple(node for node in nodes if id(node) in needed)
    inputs = tuple(
        program_input
        for program_input in parts.joint.program.inputs
        if not program_input.node.origin.backward
    )
    return Program("functional", inputs, needed_nodes, tuple(outputs))


def _written_back(node: Node) -> bool:
    """Return True if the joint stage added it: a write that stays in the graph."""
    return node.origin.effect and node.origin.stage == "joint"


def related(
    program: Program,
    parent: Program,
    captured: CapturedProgram | None = None,
    own: Callable[[Node], Origin] = lambda node: node.origin,
) -> Ancestors:
    """Return each node's ancestors: the same node; else the same step of the same call; else that call's
    nodes.

    A node of the backward comes from the nodes whose gradient it computes. `captured` knows the calls of the
    parent's nodes, and `own` returns that of a node.
    """
    original = captured.original if captured else _origin
    known: dict[int, tuple[str, ...]] = {id(node): (node.name,) for node in parent.nodes}
    inputs = {
        key: program_input.node.name for program_input in parent.inputs for key in _keys(program_input)[:1]
    }
    inputs_of = {
        id(program_input.node): next((inputs[key] for key in _keys(program_input) if key in inputs), None)
        for program_input in program.inputs
    }
    known |= {id(program_input.node): (program_input.node.name,) for program_input in parent.inputs}
    known |= _same_constants(program, parent)
    steps = {step: node.name for node, step in _steps(parent, original)}
    own_steps = {id(node): step for node, step in _steps(program, own)}
    by_origin: dict[int, tuple[str, ...]] = {}
    for node in parent.nodes:
        if node.op is not getitem:
            key = id(original(node))
            by_origin[key] = (*by_origin.get(key, ()), node.name)

    def ancestors_of(node: Node) -> tuple[str, ...]:
        if id(node) in known:
            return known[id(node)]
        if id(node) in inputs_of:
            name = inputs_of[id(node)]
            return (name,) if name is not None else ()
        if node.origin.differentiates is not None:
            return by_origin.get(id(node.origin.differentiates), ())
        same = steps.get(own_steps[id(node)]) if id(node) in own_steps else None
        if same is not None:
            return (same,)
        repeated = captured.repeated_calls.get(id(own(node))) if captured else None
        return by_origin.get(id(repeated or own(node)), ())

    return ancestors_of


def _same_constants(program: Program, parent: Program) -> dict[int, tuple[str, ...]]:
    """Return the parent's names of constants that both programs share."""
    names = {id(node.constant): (node.name,) for node in parent.constants()}
    constants = (node for node in program.constants() if id(node.constant) in names)
    return {id(node): names[id(node.constant)] for node in constants}


def _origin(node: Node) -> Any:
    return node.origin


def _keys(program_input: ProgramInput) -> tuple[tuple[str, str], ...]:
    """Return the keys of an input: its name; and, for a tensor inside a wrapper, the wrapper's."""
    slots: tuple[Any, ...] = (program_input.slot, outer_slot(program_input.slot))
    return tuple((type(slot).__name__, slot.name) for slot in slots)


Step = tuple[int, str, int]
"""One operator of one call: the call's origin, the operator, and its number among equal ones."""


def _steps(program: Program, origin: Callable[[Node], Any]) -> list[tuple[Node, Step]]:
    counts: dict[tuple[int, str], int] = {}
    steps = []
    for node in program.nodes:
        key = (id(node.origin), node.target)
        counts[key] = counts.get(key, 0) + 1
        steps.append((node, (id(origin(node)), node.target, counts[key])))
    return steps
