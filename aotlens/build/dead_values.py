"""Saved values on which no gradient depends, proved from the graph or suspected from runs on random
inputs."""

from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.build.value_ranges import packet_name
from aotlens.ir.program import Node, Program, map_nodes, nodes_in
from aotlens.ir.slots import SavedInput
from aotlens.joint.shape_only_reads import shape_only_arguments
from aotlens.partition.records import Partitioned

SIZES = "the backward needs only its sizes"
ZERO = "it is multiplied by zero, or raised to the power zero"


def statically_dead(parts: Partitioned) -> dict[int, str]:
    """Return the saved values whose data reaches no gradient, by identity, each with the reason."""
    if parts.backward is None:
        return {}
    live = {id(node) for node in nodes_in(out.value for out in parts.backward.outputs)}
    read: set[int] = set()
    for node in reversed(parts.backward.nodes):
        for source in node.inputs():
            read.add(id(source))
        if id(node) in live or node.origin.effect:
            live.update(id(source) for source in _value_operands(node))
    dead = read - live
    return {
        id(value.node): _reason(parts, value.node)
        for value in parts.saved
        if value.size_bytes and id(value.node) in dead
    }


def _value_operands(node: Node) -> list[Node]:
    """Return the arguments on whose data the node's value depends."""
    if _is_constant_by_zero(node):
        return []
    sizes = shape_only_arguments(node.op)
    operands = [arg for index, arg in enumerate(node.args) if index not in sizes]
    return [*nodes_in(operands), *nodes_in(node.kwargs.values())]


def _is_constant_by_zero(node: Node) -> bool:
    """Return True if a factor or exponent of zero makes the value constant, for finite numbers."""
    if packet_name(node.op) not in ("aten.mul", "aten.pow") or len(node.args) != 2:
        return False
    return isinstance(node.args[1], (int, float)) and node.args[1] == 0


def _reason(parts: Partitioned, value: Node) -> str:
    assert parts.backward is not None  # a saved value has one
    readers = [node for node in parts.backward.nodes if any(source is value for source in node.inputs())]
    return SIZES if all(shape_only_arguments(node.op) for node in readers) else ZERO


RANDOM_RUNS = 3
SAME_GRADIENTS = f"no gradient changed when it was replaced, in {RANDOM_RUNS} random runs"

Values = dict[int, Any]
"""Runtime values by node identity."""


@dataclass(frozen=True, slots=True)
class DeadValueCheck:
    """The outcome of the runs on random inputs."""

    dead: frozenset[int]
    """Identities of the saved values that changed no gradient."""
    note: str
    """How many values were replaced how often, or why none could be replaced."""


def dead_on_random_runs(parts: Partitioned) -> DeadValueCheck:
    """Replace each saved value that takes memory, and check whether any gradient changes."""
    obstacle = _obstacle(parts)
    if obstacle is not None or parts.backward is None:
        return DeadValueCheck(
            frozenset(), f"dead values were not searched for: {obstacle or 'there is no backward'}"
        )
    replaced = [value.node for value in parts.saved if value.size_bytes and _can_replace(value.node)]
    suspects = list(replaced)
    generator = torch.Generator()
    for run in range(RANDOM_RUNS):
        generator.manual_seed(run)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                suspects = _without_effect(parts, parts.backward, suspects, generator)
        except (RuntimeError, ValueError, IndexError, ArithmeticError) as error:
            return DeadValueCheck(
                frozenset(), (f"dead values were not searched for: on random values, {error}")
            )
    looked = f"{len(replaced)} saved values were replaced, {RANDOM_RUNS} times each"
    unchanged = f"{len(suspects) or 'none'} changed no gradient"
    return DeadValueCheck(frozenset(id(node) for node in suspects), f"{looked}: {unchanged}")


def _obstacle(parts: Partitioned) -> str | None:
    """Return why the graphs cannot run on generated inputs; None if they can."""
    for program in (parts.forward, parts.backward):
        for node in program.nodes if program is not None else ():
            if node.subgraphs():
                return f"`{node.target}` runs subgraphs"
            if node.origin.effect and node.op is not torch.ops.aten.copy_.default:
                return f"`{node.target}` has an effect"
        for program_input in program.inputs if program is not None else ():
            if not _is_plain(program_input.node.val):
                return f"`{program_input.node.name}` is not a tensor of known sizes"
    return None


def _is_plain(val: Any) -> bool:
    if not isinstance(val, torch.Tensor) or val.layout is not torch.strided:
        return False
    known = all(isinstance(size, int) for size in (*val.shape, *val.stride()))
    return known and val.device.type == "cpu"


def _can_replace(node: Node) -> bool:
    """Return True if any data of the value's type is valid for it; an index would not be."""
    val = node.val
    return isinstance(val, torch.Tensor) and (val.is_floating_point() or val.dtype is torch.bool)


def _without_effect(
    parts: Partitioned, backward: Program, suspects: list[Node], generator: torch.Generator
) -> list[Node]:
    """Return the suspects whose replacement changes no gradient in this run."""
    values = {
        id(program_input.node): _random_values(program_input.node.val, generator)
        for program_input in parts.forward.inputs
    }
    _run(parts.forward.nodes, values)
    for program_input in backward.inputs_except(SavedInput):
        values[id(program_input.node)] = _random_values(program_input.node.val, generator)
    _run([node for node in backward.nodes if id(node) not in values], values)
    return [node for node in suspects if not _changes_gradients(node, backward, values, generator)]


def _random_values(val: Any, generator: torch.Generator) -> torch.Tensor:
    """Return random data in the layout of a fake tensor; zeros for integers, which may be indices."""
    made = torch.empty_strided(val.shape, val.stride(), dtype=val.dtype)
    if val.dtype is torch.bool:
        return made.bernoulli_(0.5, generator=generator)
    if val.is_floating_point() or val.is_complex():
        return made.copy_(torch.randn(val.shape, generator=generator))
    return made.zero_()


def _run(nodes: Iterable[Node], values: Values) -> None:
    for node in nodes:
        values[id(node)] = _run_node(node, values)


def _run_node(node: Node, values: Mapping[int, Any]) -> Any:
    if node.op is None:
        return node.constant
    arguments = map_nodes(node.args, lambda source: _value(source, values))
    keywords = map_nodes(node.kwargs, lambda source: _value(source, values))
    return node.op(*arguments, **keywords)


def _value(node: Node, values: Mapping[int, Any]) -> Any:
    return values.get(id(node), node.constant)


def _changes_gradients(node: Node, backward: Program, values: Values, generator: torch.Generator) -> bool:
    """Return True if replacing the saved value changes a gradient."""
    gradients = {id(gradient) for gradient in nodes_in(out.value for out in backward.outputs)}
    if id(node) in gradients:
        return True
    changed: Values = {id(node): _perturbed(values[id(node)], generator)}
    for reader in backward.nodes:
        if id(reader) == id(node) or all(id(source) not in changed for source in reader.inputs()):
            continue
        result = _run_node(reader, ChainMap(changed, values))
        if _equal(result, values[id(reader)]):
            continue
        if id(reader) in gradients:
            return True
        changed[id(reader)] = result
    return False


def _perturbed(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if value.dtype is torch.bool:
        return ~value
    noise = torch.randn(value.shape, generator=generator).to(value.dtype)
    return value * noise + (value.abs().mean() + 1) * noise.flip(0) if value.dim() else value * 2 + 1


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(_equal, first, second))
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    return bool(first == second)
