"""The RNG state in the user's function: generators, seeding, saving, restoring, and functional RNG.

Invariant: fake tensors consume no random numbers and no generator advances; the function's changes of the
state are recorded in order with its random operators and repeated at each call.  With functional RNG, random
numbers are pure functions of a seed and an offset, which are graph inputs: each random operator starts at the
offset where the previous one ended.  The wrapper reads the generator before the graph and advances it
afterwards by the offset that the graph returns.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.storage import dimension_order
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
        """Return the state of the graph that is recorded now; a seed that waits for a device is set first."""
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
        origin = Origin(
            NO_ORIGIN, "", self._recording.in_backward, "capture", "the random generator's state at the start"
        )
        node = Node(self._recording.name(name), None, (), {}, value, origin)
        return node, self.untracked(lambda: self._recording.new_alias(node))


def has_functional_rng(device: torch.device) -> bool:
    """Return True if the device's random numbers can be functions of a seed and an offset."""
    return device.type in RANDOM_SOURCES


def check_other_random_ops(nodes: list[Node]) -> None:
    """Raise UnsupportedError for an operator that still reads a generator that the graphs replace."""
    for node in nodes:
        if not is_random_op(node.op) or not _is_on_functional_device(node):
            continue
        own = any(_is_generator(source) for source in node.inputs())
        if own or is_dropout_disabled(node):
            continue
        raise unsupported(
            "functional-rng-operator", node.origin.location.innermost, operator=op_name(node.op)
        )


def _is_on_functional_device(node: Node) -> bool:
    return any(isinstance(value, torch.Tensor) and has_functional_rng(value.device) for value in node.results)


def _is_generator(node: Node) -> bool:
    """Return True if the node is the user's own generator: an argument, or a constant one."""
    if node.op is None and node.val is None and node.constant is None:
        return True
    return isinstance(node.constant, torch.Generator) and node.constant not in torch.cuda.default_generators


class RecordedRngState:
    """Receives `torch.manual_seed` and similar calls while a function is recorded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.functional = FunctionalRandom(recording)
        self.is_functional = False
        """Whether devices with a counter-based generator use a seed and an offset of the graph."""
        self._clones: list[tuple[str, torch.Generator, torch.Tensor]] = []

    def get_state(self) -> Any:
        """Return the current state as a tensor of the graph."""
        state = self._fake_state(torch.default_generator.get_state().numel())
        return self._add(torch.random.get_rng_state, (), state, self._origin("get_rng_state"))

    def set_state(self, state: Any) -> None:
        self._add(torch.random.set_rng_state, (state,), None, self._origin("set_rng_state", effect=True))

    def manual_seed(self, seed: int) -> torch.Generator:
        self._add(torch.random.manual_seed, (seed,), None, self._origin("manual_seed", effect=True))
        return torch.default_generator

    def get_device_state(self, device: Any = "cuda") -> Any:
        """Record `torch.cuda.get_rng_state` as a value of the graph."""
        call, origin = torch.cuda.random.get_rng_state, self._origin("cuda.get_rng_state")
        if not self.is_functional:
            return self._add(call, (device,), self._fake_state(2 * torch.int64.itemsize), origin)
        with self._recording.inside_operator(origin):
            state = self.functional.get_state(self._device(device))
        self._recording.add_call((call, (device,), {}, state, origin))
        return state

    def set_device_state(self, state: Any, device: Any = "cuda") -> None:
        call, op = torch.cuda.random.set_rng_state, "cuda.set_rng_state"
        if not self.is_functional:
            self._add(call, (state, device), None, self._origin(op, effect=True))
            return
        origin = self._origin(op)
        self._set_device_state(state, self._device(device), origin)
        self._recording.add_call((call, (state, device), {}, None, origin))

    def seed_devices(self, seed: int) -> None:
        """Record `torch.cuda.manual_seed` and `manual_seed_all`, which `torch.manual_seed` also calls."""
        call, origin = torch.cuda.random.manual_seed_all, self._origin("cuda.manual_seed_all", effect=True)
        if self.is_functional:
            self.functional.when_device_is_known(lambda device: self._seed_device(seed, device, origin))
            self._recording.add_call((call, (seed,), {}, None, origin))
        elif torch.cuda.is_available():
            self._add(call, (seed,), None, origin)

    def _add(self, call: Any, args: tuple[Any, ...], result: Any, origin: Origin) -> Any:
        """Record one call as a node; return its result."""
        recording = self._recording
        node = recording.add_node(call, tuple(map(recording.argument, args)), {}, result, origin)
        recording.track_results(node, result)
        recording.add_call((call, args, {}, result, origin))
        return result

    def _fake_state(self, size: int) -> Any:
        return self.functional.untracked(lambda: torch.empty(size, dtype=torch.uint8))

    def _seed_device(self, seed: int, device: torch.device, origin: Origin) -> None:
        with self._recording.inside_operator(origin):
            pair = [torch.full((), number, dtype=torch.int64) for number in (_signed(seed), 0)]
            state = torch.stack(pair).view(torch.uint8)
        self._set_device_state(state, device, origin)

    def _set_device_state(self, state: Any, device: torch.device, origin: Origin) -> None:
        """Continue from a state; another seed is also set in the generator, which the wrapper advances."""
        with self._recording.inside_operator(origin):
            foreign = self.functional.set_state(state, device)
        if foreign:  # the node sets the seed; the wrapper sets the final offset
            args = (self._recording.node_of(state), device)
            self._recording.add_node(
                torch.cuda.random.set_rng_state, args, {}, None, replace(origin, effect=True)
            )

    def _device(self, device: Any) -> torch.device:
        """Return the device that an argument of `torch.cuda` denotes."""
        if self.functional.device is not None and device in ("cuda", torch.device("cuda")):
            return self.functional.device
        resolved = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        return resolved if resolved.index is not None else torch.device(resolved.type, 0)

    def seed(self) -> int:
        raise unsupported("new-seed", self._recording.current_frames().innermost)

    def initial_seed(self) -> int:
        raise unsupported("initial-seed", self._recording.current_frames().innermost)

    def _origin(self, op: str, effect: bool = False) -> Origin:
        return Origin(self._recording.current_frames(), f"torch.{op}", effect=effect)

    def graph_input(
        self, name: str, node_name: str, generator: torch.Generator
    ) -> tuple[Node, torch.Generator]:
        """Return the graph input for the caller's generator, and the function's argument for it."""
        clone = generator.clone_state()
        node = Node(self._recording.name(node_name), None, (), {}, None, Origin(NO_ORIGIN, ""))
        self._recording.objects[id(clone)] = node
        self._clones.append((name, clone, clone.get_state()))
        return node, clone

    def reject_new_generator(self) -> None:
        """Raise UnsupportedError, since the function creates a generator: each call would need a new one."""
        raise unsupported("new-generator", self._recording.current_frames().innermost)

    def reject_changed_generators(self) -> None:
        """Raise UnsupportedError if the function changed the state of a generator argument."""
        for name, clone, before in self._clones:
            if not torch.equal(clone.get_state(), before):
                raise unsupported("generator-state", self._recording.span, generator=name)


def without_generators(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's arguments on fake tensors, which use no generator."""
    return {key: None if isinstance(value, torch.Generator) else value for key, value in kwargs.items()}


def _signed(seed: int) -> int:
    """Return the seed's 64 bits as a signed number."""
    return (seed + 2**63) % 2**64 - 2**63
