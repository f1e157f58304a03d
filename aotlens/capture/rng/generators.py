"""Generators that the function creates by `torch.Generator()` and seeds itself.

Invariant: each call of the compiled function uses a new generator in the state that the function set; random
operators between two seedings share it.
"""

from typing import Any

import torch

from aotlens.ir.program import Node
from aotlens.torch_api.modes import without_modes

CLONE_STATE: Any = torch.Generator.clone_state
MARKER_SEED = 0x5EED_A07
"""The seed that marks a recorded generator: any other state was set by the function."""


class CreatedGenerators:
    """The generators that one function creates."""

    def __init__(self) -> None:
        self._states: dict[int, tuple[torch.Generator, bytes]] = {}
        """By identity: each generator, which keeps it alive, and its recorded state."""

    def note(self, generator: torch.Generator) -> None:
        """Note a generator that the function has created."""
        self._states[id(generator)] = (generator, b"")

    def __contains__(self, generator: torch.Generator) -> bool:
        return id(generator) in self._states

    def node(self, recording: Any, generator: torch.Generator) -> Node:
        """Return the generator's node: the previous one, or a new one if it was seeded since."""
        known: Node | None = recording.objects.get(id(generator))
        if known is not None and _state(generator) == self._states[id(generator)][1]:
            return known
        start = generator.clone_state()
        source = Node(recording.name("generator"), None, (), {}, None, recording.origin, constant=start)
        recording.nodes.insert(0, source)
        recording.objects[id(start)] = source
        made: Node = recording.add_node(CLONE_STATE, (source,), {}, None)
        recording.objects[id(generator)] = made
        recording.add_call((CLONE_STATE, (start,), {}, generator, recording.origin))
        generator.manual_seed(MARKER_SEED)
        self._states[id(generator)] = (generator, _state(generator))
        return made


def _state(generator: torch.Generator) -> bytes:
    with without_modes():
        return bytes(generator.get_state().numpy())
