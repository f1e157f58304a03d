"""Saved values on which no gradient depends, found by numbers.

The forward runs on random values, then the backward; each saved value is replaced by others, and what depends
on it runs again until a gradient differs.  Invariant: no false alarm.  A value is dead only when every draw
leaves every gradient as it was to the bit; whatever gives NaN, or cannot be replaced, counts as alive.  Only
tensors that are made here are touched; the user's code does not run.
"""

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.ir.program import Node, Program, map_nodes, nodes_in
from aotlens.ir.slots import SavedInput
from aotlens.partition.records import Partitioned

DRAWS = 3
SAME_GRADIENTS = f"no gradient changed when it was replaced, in {DRAWS} draws"

Values = dict[int, Any]
"""By the identity of the node."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What the draws showed."""

    dead: frozenset[int]
    """Identities of the values on which nothing depends."""
    note: str
    """How many values were replaced how often, or why none could be."""


def dead_by_draws(parts: Partitioned) -> Checked:
    """Replace each saved value that takes memory and look whether a gradient changes."""
    refusal = _refusal(parts)
    if refusal is not None or parts.backward is None:
        return Checked(frozenset(), f"dead values were not looked for: {refusal or 'there is no backward'}")
    replaced = [value.node for value in parts.saved if value.size_bytes and _can_replace(value.node)]
    suspects = list(replaced)
    generator = torch.Generator()
    for draw in range(DRAWS):
        generator.manual_seed(draw)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                suspects = _unchanged(parts, parts.backward, suspects, generator)
        except (RuntimeError, ValueError, IndexError, ArithmeticError) as error:
            return Checked(frozenset(), f"dead values were not looked for: on random values, {error}")
    looked = f"{len(replaced)} saved values were replaced by others, {DRAWS} times each"
    found = f"{len(suspects) or 'none'} changed no gradient"
    return Checked(frozenset(id(node) for node in suspects), f"{looked}: {found}")


def _refusal(parts: Partitioned) -> str | None:
    """Why the graphs cannot run on values made up here."""
    for program in (parts.forward, parts.backward):
        for node in program.nodes if program is not None else ():
            if node.bodies():
                return f"`{node.target}` runs functions"
            if node.origin.effect and node.op is not torch.ops.aten.copy_.default:
                return f"`{node.target}` has an effect"
        for given in program.inputs if program is not None else ():
            if not _is_plain(given.node.val):
                return f"`{given.node.name}` is no tensor of known sizes"
    return None


def _is_plain(val: Any) -> bool:
    if not isinstance(val, torch.Tensor) or val.layout is not torch.strided:
        return False
    known = all(isinstance(size, int) for size in (*val.shape, *val.stride()))
    return known and val.device.type == "cpu"


def _can_replace(node: Node) -> bool:
    """Whether any numbers of its type would do: an index would not."""
    val = node.val
    return isinstance(val, torch.Tensor) and (val.is_floating_point() or val.dtype is torch.bool)


def _unchanged(
    parts: Partitioned, backward: Program, suspects: list[Node], generator: torch.Generator
) -> list[Node]:
    """Those of the suspects whose replacement leaves all gradients of this draw as they are."""
    values = {id(given.node): _drawn(given.node.val, generator) for given in parts.forward.inputs}
    _run(parts.forward.nodes, values)
    for given in backward.inputs:
        if not isinstance(given.slot, SavedInput):
            values[id(given.node)] = _drawn(given.node.val, generator)
    _run(tuple(_made_in(backward, values)), values)
    return [node for node in suspects if not _matters(node, backward, values, generator)]


def _made_in(backward: Program, values: Values) -> Iterator[Node]:
    """The backward's nodes; those that the forward has run are known already."""
    return (node for node in backward.nodes if id(node) not in values)


def _drawn(val: Any, generator: torch.Generator) -> torch.Tensor:
    """Random numbers in the layout of a fake tensor; zeros for integers, which may be indices."""
    made = torch.empty_strided(val.shape, val.stride(), dtype=val.dtype)
    if val.dtype is torch.bool:
        return made.bernoulli_(0.5, generator=generator)
    if val.is_floating_point() or val.is_complex():
        return made.copy_(torch.randn(val.shape, generator=generator))
    return made.zero_()


def _run(nodes: tuple[Node, ...], values: Values) -> None:
    for node in nodes:
        values[id(node)] = _computed(node, values)


def _computed(node: Node, values: Mapping[int, Any]) -> Any:
    if node.op is None:
        return node.constant
    arguments = map_nodes(node.args, lambda source: _value(source, values))
    keywords = map_nodes(node.kwargs, lambda source: _value(source, values))
    return node.op(*arguments, **keywords)


def _value(node: Node, values: Mapping[int, Any]) -> Any:
    return values.get(id(node), node.constant)


def _matters(node: Node, backward: Program, values: Values, generator: torch.Generator) -> bool:
    """Whether a gradient is another one when the saved value is."""
    gradients = {id(each) for each in nodes_in(out.value for out in backward.outputs)}
    if id(node) in gradients:
        return True
    changed: Values = {id(node): _other(values[id(node)], generator)}
    for reader in backward.nodes:
        if id(reader) == id(node) or all(id(source) not in changed for source in reader.inputs()):
            continue
        found = _computed(reader, ChainMap(changed, values))
        if _equal(found, values[id(reader)]):
            continue
        if id(reader) in gradients:
            return True
        changed[id(reader)] = found
    return False


def _other(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if value.dtype is torch.bool:
        return ~value
    noise = torch.randn(value.shape, generator=generator).to(value.dtype)
    return value * noise + (value.abs().mean() + 1) * noise.flip(0) if value.dim() else value * 2 + 1


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)
