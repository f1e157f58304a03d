"""Generators that the function makes by `torch.Generator()` and seeds itself.

Invariant: each call of the compiled function draws from a generator made anew, in the state that the function
gave it; draws between two seedings share one.
"""

from typing import Any

import torch

from aotlens.ir.program import Node
from aotlens.torch_api.modes import without_modes

CLONE_STATE: Any = torch.Generator.clone_state
MARKER_SEED = 0x5EED_A07
"""The seed that such a generator is left with: any other state is the function's doing."""


class CreatedGenerators:
    """The generators that one function made."""

    def __init__(self) -> None:
        self._states: dict[int, tuple[torch.Generator, bytes]] = {}
        """By identity: each, so that it stays, and the state in which it was left."""

    def note(self, generator: torch.Generator) -> None:
        """The function has made one."""
        self._states[id(generator)] = (generator, b"")

    def __contains__(self, generator: torch.Generator) -> bool:
        return id(generator) in self._states

    def node(self, tape: Any, generator: torch.Generator) -> Node:
        """The node of such a generator: the one before, or a new one where it was seeded since."""
        known: Node | None = tape.objects.get(id(generator))
        if known is not None and _state(generator) == self._states[id(generator)][1]:
            return known
        start = generator.clone_state()
        source = Node(tape.name("generator"), None, (), {}, None, tape.origin, constant=start)
        tape.nodes.insert(0, source)
        tape.objects[id(start)] = source
        made: Node = tape.add_node(CLONE_STATE, (source,), {}, None)
        tape.objects[id(generator)] = made
        tape.add_call((CLONE_STATE, (start,), {}, generator, tape.origin))
        generator.manual_seed(MARKER_SEED)
        self._states[id(generator)] = (generator, _state(generator))
        return made


def _state(generator: torch.Generator) -> bytes:
    with without_modes():
        return bytes(generator.get_state().numpy())
