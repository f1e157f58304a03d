"""Random numbers of a device as pure functions of a seed and an offset, which are graph inputs.

Invariant: nothing in such a graph reads or advances a generator; each random operator starts at the offset
where the previous one ended.  The wrapper reads the generator before the graph and advances it afterwards by
the offset that the graph returns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.storage import Storage, dimension_order
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node, ProgramInput, ProgramOutput, is_dropout_disabled, is_random_op, op_name
from aotlens.ir.slots import BackwardRngOffset, BackwardRngState, RngOffset, RngState
from aotlens.torch_api.modes import without_modes
from aotlens.unsupported import unsupported

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomSource:
    """How to read, use and advance the generator of one device type."""

    operator: Callable[..., Any]
    """The operator `(size, seed, offset, stride, device, dtype)`; returns numbers from [0, 1) and the advance
    of the offset."""
    read: str
    """Module text for seed and offset as integer tensors; `{device}` is the device's literal."""
    advance: str
    """Module text that sets the offset; `{offset}` is an integer."""


RANDOM_SOURCES: dict[str, RandomSource] = {
    "cuda": RandomSource(
        torch.ops.rngprims.philox_rand.default,
        "torch.cuda.get_rng_state({device}).view(torch.int64).unbind()",
        "torch.cuda._set_rng_state_offset({offset}, {device})",
    )
}
"""By device type: those with a counter-based generator."""


@dataclass(slots=True)
class _GraphState:
    """The RNG state within the forward or backward graph."""

    inputs: tuple[Node, ...]
    """The graph's inputs: seed and base offset."""
    seed: Any
    offset: Any
    """The offset of the next random operator."""


class FunctionalRandom:
    """The RNG state of one recording, as values of its graphs."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._graph_states: dict[bool, _GraphState] = {}
        self._states: list[tuple[Any, Any, Any]] = []
        """States that the function has read: the returned tensor, seed and offset."""
        self._has_other_seed = False
        """Whether the function has given the generator another seed."""
        self.device: torch.device | None = None
        """The device of the generator; None until a random operator is recorded."""
        self._seeding: Callable[[torch.device], None] | None = None
        """The function's last new seed while the device is unknown; it replaces all earlier ones."""

    def units(self, size: Any, device: torch.device, dtype: torch.dtype) -> Any:
        """Return numbers from [0, 1); call it with the recorder on the stack of modes."""
        if any(type(length) is int and length == 0 for length in size):
            return torch.empty(size, device=device, dtype=dtype)
        side = self._graph_state(device)
        source = RANDOM_SOURCES[device.type]
        values, jump = source.operator(size, side.seed, side.offset, None, device, dtype)
        side.offset = side.offset + jump
        return values

    def units_like(self, like: Any, dtype: torch.dtype) -> Any:
        """Return numbers from [0, 1) in the sizes and layout of another tensor."""
        order = dimension_order(like)  # in which a kernel numbers the elements
        values = self.units([like.shape[dim] for dim in order], like.device, dtype)
        if order == list(range(like.dim())):
            return values
        return values.permute([order.index(dim) for dim in range(like.dim())])

    def untracked(self, make: Callable[[], T]) -> T:
        """Return fake tensors that no node represents, for their metadata."""
        with without_modes(), self._recording.fake_mode:
            return make()

    def get_state(self, device: torch.device) -> Any:
        """Return the current state, in the bytes of the device's generator."""
        side = self._graph_state(device)
        state = torch.stack([side.seed, side.offset]).view(torch.uint8)
        self._states.append((state, side.seed, side.offset))
        return state

    def set_state(self, state: Any, device: torch.device) -> bool:
        """Continue from another state; return True if its seed may differ from the generator's."""
        side = self._graph_state(device)
        for known, seed, offset in self._states:
            if known is state:
                side.seed, side.offset = seed, offset
                return self._has_other_seed
        side.seed, side.offset = state.view(torch.int64).unbind()
        self._has_other_seed = True
        return True

    def when_device_is_known(self, action: Callable[[torch.device], None]) -> None:
        """Apply a change to the state: now, or before the first random operator on a device."""
        if self.device is not None:
            action(self.device)
        elif torch.cuda.is_available():
            action(torch.device("cuda", torch.cuda.current_device()))
        else:
            self._seeding = action

    def inputs(self, backward: bool) -> tuple[ProgramInput, ...]:
        """Return seed and base offset if the graph is random."""
        slot = BackwardRngState if backward else RngState
        side = self._graph_states.get(backward)
        return tuple(ProgramInput(node, slot(node.name)) for node in side.inputs) if side is not None else ()

    def outputs(self, backward: bool) -> tuple[ProgramOutput, ...]:
        """Return the final offset if the graph is random."""
        side = self._graph_states.get(backward)
        if side is None:
            return ()
        slot = BackwardRngOffset() if backward else RngOffset()
        return (ProgramOutput(self._recording.node_of(side.offset), slot),)

    def _graph_state(self, device: torch.device) -> _GraphState:
        if self._recording.is_subgraph:
            raise unsupported("functional-rng-in-subgraph", self._recording.span)
        if self.device is None:
            self.device = device
        if device != self.device:
            raise unsupported(
                "functional-rng-devices", self._recording.span, first=self.device, second=device
            )
        backward = self._recording.in_backward
        known = self._graph_states.get(backward)
        if known is None:
            known = self._graph_states[backward] = self._new_graph_state("bwd" if backward else "fwd")
        seeding, self._seeding = self._seeding, None
        if seeding is not None:
            seeding(device)
        return known

    def _new_graph_state(self, name: str) -> _GraphState:
        seed_node, seed = self._input(f"{name}_seed")
        offset_node, offset = self._input(f"{name}_base_offset")
        return _GraphState((seed_node, offset_node), seed, offset)

    def _input(self, name: str) -> tuple[Node, Any]:
        value = self.untracked(lambda: torch.empty((), dtype=torch.int64))
        alias = self.untracked(value.detach)
        origin = Origin(
            NO_ORIGIN, "", self._recording.in_backward, "capture", "the random generator's state at the start"
        )
        node = Node(self._recording.name(name), None, (), {}, value, origin)
        self._recording.track(alias, Storage(node, alias))
        return node, alias


def is_functional(device: torch.device) -> bool:
    return device.type in RANDOM_SOURCES


def check_other_random_ops(nodes: list[Node]) -> None:
    """Raise UnsupportedError for an operator that still reads a generator that the graphs replace."""
    for node in nodes:
        if not is_random_op(node.op) or not _device_counts(node):
            continue
        own = any(_is_generator(source) for source in node.inputs())
        if own or is_dropout_disabled(node):
            continue
        raise unsupported(
            "functional-rng-operator", node.origin.location.innermost, operator=op_name(node.op)
        )


def _device_counts(node: Node) -> bool:
    return any(isinstance(value, torch.Tensor) and is_functional(value.device) for value in node.results)


def _is_generator(node: Node) -> bool:
    """Return True if the node is the user's own generator: an argument, or a constant one."""
    if node.op is None and node.val is None and node.constant is None:
        return True
    return isinstance(node.constant, torch.Generator) and node.constant not in torch.cuda.default_generators
