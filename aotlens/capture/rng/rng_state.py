"""The random state as the user's function handles it: generators of its own, seeding, saving and restoring.

Invariant: nothing draws while fake tensors run, and no generator's state moves; what the function does to
the state is recorded in order with its draws, and happens at each call.
"""

from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.rng.philox import FunctionalRandom
from aotlens.capture.storage import Storage
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.torch_api.modes import without_modes
from aotlens.unsupported import unsupported


class RecordedRngState:
    """What `torch.manual_seed` and its like speak to while a function is recorded."""

    def __init__(self, tape: Recording) -> None:
        self._tape = tape
        self.functional = FunctionalRandom(tape)
        self.is_functional = False
        """Whether devices with a counter-based generator draw from a seed and an offset of the graph."""
        self._clones: list[tuple[str, torch.Generator, torch.Tensor]] = []

    def get_state(self) -> Any:
        """The state at this point of the run, as a tensor of the graph."""
        with self._tape.fake_mode:
            state = torch.empty(torch.default_generator.get_state().numel(), dtype=torch.uint8)
        node = self._tape.add_node(torch.random.get_rng_state, (), {}, state, self._origin("get_rng_state"))
        self._tape.track(state, Storage(node, state))
        self._tape.add_call((torch.random.get_rng_state, (), {}, state, node.origin))
        return state

    def set_state(self, state: Any) -> None:
        origin = self._origin("set_rng_state", effect=True)
        self._tape.add_node(torch.random.set_rng_state, (self._tape.node_of(state),), {}, None, origin)
        self._tape.add_call((torch.random.set_rng_state, (state,), {}, None, origin))

    def manual_seed(self, seed: int) -> torch.Generator:
        origin = self._origin("manual_seed", effect=True)
        self._tape.add_node(torch.random.manual_seed, (seed,), {}, None, origin)
        self._tape.add_call((torch.random.manual_seed, (seed,), {}, None, origin))
        return torch.default_generator

    def get_device_state(self, device: Any = "cuda") -> Any:
        """`torch.cuda.get_rng_state`: a value of the graph."""
        call, origin = torch.cuda.random.get_rng_state, self._origin("cuda.get_rng_state")
        if self.is_functional:
            with self._tape.inside_operator(origin):
                state = self.functional.get_state(self._device(device))
        else:
            with without_modes(), self._tape.fake_mode:
                state = torch.empty(2 * torch.int64.itemsize, dtype=torch.uint8)
            node = self._tape.add_node(call, (device,), {}, state, origin)
            self._tape.track(state, Storage(node, state))
        self._tape.add_call((call, (device,), {}, state, origin))
        return state

    def set_device_state(self, state: Any, device: Any = "cuda") -> None:
        call, origin = torch.cuda.random.set_rng_state, self._origin("cuda.set_rng_state")
        if self.is_functional:
            self._set_device_state(state, self._device(device), origin)
        else:
            args = (self._tape.node_of(state), device)
            self._tape.add_node(call, args, {}, None, replace(origin, effect=True))
        self._tape.add_call((call, (state, device), {}, None, origin))

    def seed_devices(self, seed: int) -> None:
        """`torch.cuda.manual_seed` and `manual_seed_all`, which `torch.manual_seed` calls too."""
        call, origin = torch.cuda.random.manual_seed_all, self._origin("cuda.manual_seed_all", effect=True)
        if self.is_functional:
            self.functional.when_device_is_known(lambda device: self._seed_device(seed, device, origin))
        elif torch.cuda.is_available():
            self._tape.add_node(call, (seed,), {}, None, origin)
        else:
            return
        self._tape.add_call((call, (seed,), {}, None, origin))

    def _seed_device(self, seed: int, device: torch.device, origin: Origin) -> None:
        with self._tape.inside_operator(origin):
            pair = [torch.full((), number, dtype=torch.int64) for number in (_signed(seed), 0)]
            state = torch.stack(pair).view(torch.uint8)
        self._set_device_state(state, device, origin)

    def _set_device_state(self, state: Any, device: torch.device, origin: Origin) -> None:
        with self._tape.inside_operator(origin):
            foreign = self.functional.set_state(state, device)
        if foreign:  # its seed is set here; the offset by the wrapper, once all draws are counted
            args = (self._tape.node_of(state), device)
            self._tape.add_node(torch.cuda.random.set_rng_state, args, {}, None, replace(origin, effect=True))

    def _device(self, device: Any) -> torch.device:
        """The device that an argument of `torch.cuda` means."""
        if self.functional.device is not None and device in ("cuda", torch.device("cuda")):
            return self.functional.device
        resolved = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        return resolved if resolved.index is not None else torch.device(resolved.type, 0)

    def seed(self) -> int:
        raise unsupported("new-seed", self._tape.current_frames().innermost)

    def initial_seed(self) -> int:
        raise unsupported("initial-seed", self._tape.current_frames().innermost)

    def _origin(self, op: str, effect: bool = False) -> Origin:
        return Origin(self._tape.current_frames(), f"torch.{op}", effect=effect)

    def argument(self, name: str, node_name: str, generator: torch.Generator) -> tuple[Node, torch.Generator]:
        """The graph input for a generator that the caller passes, and what the function gets for it."""
        clone = generator.clone_state()
        node = Node(self._tape.name(node_name), None, (), {}, None, Origin(NO_ORIGIN, ""))
        self._tape.objects[id(clone)] = node
        self._clones.append((name, clone, clone.get_state()))
        return node, clone

    def reject_seeding(self) -> None:
        """Raises UnsupportedError where the function itself moved the state of a generator of its own."""
        for name, clone, before in self._clones:
            if not torch.equal(clone.get_state(), before):
                raise unsupported("generator-state", self._tape.span, generator=name)


def without_generators(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments with which an operator runs on fake tensors, which draw nothing."""
    return {key: None if isinstance(value, torch.Generator) else value for key, value in kwargs.items()}


def _signed(seed: int) -> int:
    """The seed's 64 bits as a signed number."""
    return (seed + 2**63) % 2**64 - 2**63
