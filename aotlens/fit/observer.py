"""Record every storage that eager code allocates: bytes, line, phase, and the moments of its life.

Invariant: the observer changes nothing that the script computes; a storage is counted once, however many
views it has, and its release is noted when the last reference to it goes.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from aotlens.capture.frames import user_place
from aotlens.ir.origin import NOWHERE, Place
from aotlens.report.fit_records import FitKind, FitPhase
from aotlens.torch_api import (
    BACKWARD_CALL,
    TorchDispatchMode,
    current_autograd_node,
    is_traceable_wrapper_subclass,
    next_sequence_number,
    pytree,
)

__all__ = ["Observer", "StorageLife", "observing_memory"]


@dataclass(slots=True, eq=False)
class StorageLife:
    """One storage from its allocation on; `freed`, `kind` and `state` are filled in as they become known."""

    bytes: int
    made: int
    """The moment of its allocation."""
    phase: FitPhase
    op: str
    place: Place
    tensor: str
    device: str
    freed: int | None = None
    kind: FitKind | None = None
    """Set for what an optimizer names: parameters, gradients, state."""
    state: str = ""


class Observer(TorchDispatchMode):
    """Notes the storages that operators return, and the boundaries of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: list[StorageLife] = []
        self.moments = 0
        self.boundaries: list[int] = []
        """The moment at which each call of an optimizer's `step` ended."""
        self.backward_starts: list[int] = []
        """The moment of the first operator of each backward."""
        self._phase: FitPhase = "setup"
        self._in_step = False
        self._alive: dict[int, StorageLife] = {}
        self._forward_places: dict[int, Place] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Dynamo compiles within it, as if it were not there."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        place = self._enter(user_place(BACKWARD_CALL))
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and not is_traceable_wrapper_subclass(leaf):
                self._note(leaf, str(func), place)
        return result

    def step_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._phase, self._in_step = "optimizer", True

    def step_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Learn what the optimizer holds; the next step starts here."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._set_kind(parameter, "parameter")
                self._set_kind(parameter.grad, "gradient")
                for name, value in optimizer.state.get(parameter, {}).items():
                    self._set_kind(value, "optimizer state", str(name))
        self.boundaries.append(self.moments)
        self._phase, self._in_step = "forward", False
        self._forward_places.clear()

    def _enter(self, place: Place) -> Place:
        """The phase and the line of the operator that is about to run."""
        node = current_autograd_node()
        if node is None:
            self._forward_places.setdefault(next_sequence_number() - 1, place)
            if self._phase in ("backward", "optimizer") and not self._in_step:
                # With gradients a further micro batch begins; without, gradients are clipped.
                self._phase = "forward" if torch.is_grad_enabled() else "optimizer"
            return place
        if self._phase != "backward" and not self._in_step:
            self.backward_starts.append(self.moments)
            self._phase = "backward"
        return place if place.frames else self._forward_places.get(node._sequence_nr(), NOWHERE)

    def _note(self, tensor: torch.Tensor, op: str, place: Place) -> None:
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        size_bytes = storage.nbytes()
        if key in self._alive or not size_bytes:
            return
        text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        life = StorageLife(size_bytes, self._tick(), self._phase, op, place, text, tensor.device.type)
        self._alive[key] = life
        self.lives.append(life)
        weakref.finalize(storage, self._free, key, life).atexit = False

    def _free(self, key: int, life: StorageLife) -> None:
        life.freed = self._tick()
        if self._alive.get(key) is life:
            del self._alive[key]

    def _tick(self) -> int:
        self.moments += 1
        return self.moments - 1

    def _set_kind(self, value: object, kind: FitKind, state: str = "") -> None:
        if isinstance(value, torch.Tensor) and not is_traceable_wrapper_subclass(value):
            life = self._alive.get(value.untyped_storage()._cdata)
            if life is not None:
                life.kind, life.state = kind, state


@contextmanager
def observing_memory() -> Iterator[Observer]:
    """Within the block, what operators allocate is noted; enter a fake mode outside of it."""
    observer = Observer()
    before = register_optimizer_step_pre_hook(observer.step_begins)
    after = register_optimizer_step_post_hook(observer.step_ends)
    try:
        with observer:
            yield observer
    finally:
        before.remove()
        after.remove()
