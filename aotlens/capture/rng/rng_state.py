"""The RNG state in the user's function: generators, seeding, saving and restoring.

Invariant: fake tensors consume no random numbers and no generator advances; the function's changes of the
state are recorded in order with its random operators and repeated at each call.
"""

from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.rng.philox import FunctionalRandom
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.unsupported import unsupported


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

    def argument(self, name: str, node_name: str, generator: torch.Generator) -> tuple[Node, torch.Generator]:
        """Return the graph input for the caller's generator, and the function's argument for it."""
        clone = generator.clone_state()
        node = Node(self._recording.name(node_name), None, (), {}, None, Origin(NO_ORIGIN, ""))
        self._recording.objects[id(clone)] = node
        self._clones.append((name, clone, clone.get_state()))
        return node, clone

    def reject_new_generator(self) -> None:
        """Raise UnsupportedError, since the function creates a generator: each call would need a new one."""
        raise unsupported("new-generator", self._recording.current_frames().innermost)

    def reject_seeding(self) -> None:
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
