"""Record every storage that eager code allocates: bytes, line, phase, and lifetime.

Invariant: the observer changes nothing that the script computes; a storage is counted once, however many
views it has, and its release is recorded when the last reference is gone.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from aotlens.capture.provenance.frames import user_frames
from aotlens.fit.collectives import Communication, OperatorCall
from aotlens.fit.floor import UndividedCall, is_cast, is_undivided
from aotlens.fit.graph_lines import compiled_caller
from aotlens.fit.library_workspaces import LibraryWorkspaces
from aotlens.fit.other_phases import OtherPhases
from aotlens.fit.placeholders import READS_A_VALUE, Placeholders
from aotlens.fit.replacements import module_copies, rng_state_reads
from aotlens.fit.storage_sizes import actual_bytes, bytes_while_running
from aotlens.fit.work import WorkCounter
from aotlens.ir.origin import Frames
from aotlens.model.fit import FitKind, FitMoment, FitPhase
from aotlens.torch_api.autograd import BACKWARD_CALL, current_autograd_node, next_sequence_number
from aotlens.torch_api.dynamo.state import is_dynamo_compiling
from aotlens.torch_api.fake.process_groups import in_backward, inner_tensors, storage_resize_patch
from aotlens.torch_api.fake.tensors import (
    DATA_DEPENDENT_ERRORS,
    DynamicOutputShapeException,
    FakeTensor,
    is_traceable_wrapper_subclass,
    is_traceable_wrapper_subclass_type,
)
from aotlens.torch_api.modes import TorchDispatchMode, is_hidden_from_user_modes
from aotlens.torch_api.operators import pytree
from aotlens.torch_api.replacements import replacing

__all__ = ["Observer", "StorageLife", "observing_memory"]

OUTERMOST = (lambda: None).__code__
"""A boundary that no stack has."""


@dataclass(slots=True, eq=False)
class StorageLife:
    """The lifetime of one storage; `freed_at`, `kind` and `state` are set when they become known."""

    bytes: int
    created_at: int
    """The moment of its allocation."""
    phase: FitPhase
    op: str
    frames: Frames
    tensor: str
    device: str
    freed_at: int | None = None
    kind: FitKind | None = None
    """Set for storages that an optimizer or a module names: parameters, buffers, gradients, state."""
    state: str = ""
    is_data: bool = False
    """Whether it is computed, with gradients enabled, only from values that require none."""
    is_read_by_model: bool = False
    """Whether an operator reads it together with a tensor that requires a gradient."""
    is_communicated: bool = False
    """Whether a collective reads or writes it."""


class Observer(TorchDispatchMode):
    """Records the storages that operators return, and the boundaries of steps."""

    supports_higher_order_operators = True

    def __init__(
        self,
        after_step: Callable[["Observer"], None] = lambda observer: None,
        graph_frames: Callable[[CodeType, int], Frames | None] = lambda code, line: None,
        communication: Communication | None = None,
    ) -> None:
        """`after_step` is called at the end of each `step` of an optimizer, and may end the script.

        `graph_frames` returns the user's frames for a line of a compiled module's text. `communication`
        replaces collectives where this process acts as one rank of several.
        """
        super().__init__()
        self.communication = communication
        self.workspaces: LibraryWorkspaces | None = None
        """Of the GPU; None where none is there or emulated."""
        self._after_step = after_step
        self._graph_frames = graph_frames
        self.lives: list[StorageLife] = []
        self.moments = 0
        self.work = WorkCounter()
        self.undivided_calls: list[UndividedCall] = []
        self.boundaries: list[int] = []
        """The moment at which each call of an optimizer's `step` ended."""
        self.backward_starts: list[int] = []
        """The moment of the first operator of each backward."""
        self.optimizer_starts: list[int] = []
        """The moment at which each call of an optimizer's `step` begins."""
        self.placeholders = Placeholders()
        self.other_phases = OtherPhases()
        self._modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._phase: FitPhase = "setup"
        self._in_step = False
        self._alive: dict[int, StorageLife] = {}
        self._emptied: dict[int, StorageLife] = {}
        """The last lifetime of storages that were resized to nothing, and may grow again."""
        self._forward_frames: dict[int, Frames] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True, so that Dynamo compiles inside the mode as if it did not exist."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented  # the wrapper runs the operator on its inner tensors, which are counted
        if is_dynamo_compiling() or is_hidden_from_user_modes():
            return func(*args, **(kwargs or {}))
        frames_in_backward = user_frames(BACKWARD_CALL)
        frames = self._enter(frames_in_backward)
        caller = compiled_caller()
        self.other_phases.graph_runs(None if caller is None else caller.f_code)
        if caller is not None:
            frames = self._graph_frames(caller.f_code, caller.f_lineno) or frames
        tensors = list(_counted((args, kwargs)))
        is_data = torch.is_grad_enabled() and not any(tensor.requires_grad for tensor in tensors)
        storages = self._read(tensors, is_data, frames)
        self._note_phase(func, storages, is_data)
        try:
            result = self._run(func, args, kwargs or {})
        except DATA_DEPENDENT_ERRORS:
            if str(func) != READS_A_VALUE:
                raise
            return self.placeholders.read(args[0].dtype, frames)
        self.work.count(func, args, kwargs or {}, result, tensors)
        results = list(_counted(result))
        for leaf, size_bytes in zip(results, actual_bytes(func, args, results), strict=True):
            self._record(leaf, str(func), frames, is_data, size_bytes)
        if self._is_collective(func):
            self._communicate((func, args, kwargs or {}), result, frames)
        if working := bytes_while_running(func, args, kwargs or {}, result):
            storages.append(self._record_internal("working memory", str(func), working, frames))
            storages[-1].freed_at = self._tick()
        if self.workspaces is not None and results and results[0].device.type == "cuda":
            for size_bytes in self.workspaces.added_by(func, args, in_backward()):
                self._record_internal("library workspace", str(func), size_bytes, frames, "cuda")
        is_hook = bool(frames_in_backward.frames)
        self._note_undivided(
            (func, args, kwargs or {}), (*storages, *self._lives_of(results)), frames, is_hook
        )
        return result

    def _note_undivided(
        self, call: OperatorCall, storages: tuple[StorageLife, ...], frames: Frames, is_hook: bool
    ) -> None:
        """Record the call if parts of the batch cannot replace it."""
        running = None if is_hook else current_autograd_node()
        casts = is_cast(*call)
        if casts or is_undivided(*call, "" if running is None else running.name()):
            where = FitMoment(self._phase, str(call[0]), frames.innermost, self.moments - 1)
            self.undivided_calls.append(UndividedCall(where.moment, where, storages, casts))

    def _is_collective(self, func: Any) -> bool:
        return self.communication is not None and self.communication.handles(func)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.communication is not None and self.communication.handles(func):
            return self.communication.run(func, args, kwargs)
        result = func(*args, **kwargs)
        if any(map(_has_unknown_size, pytree.tree_leaves(result))):
            raise DynamicOutputShapeException(func)
        return result

    def _communicate(self, call: OperatorCall, result: Any, frames: Frames) -> None:
        """Record a collective and mark its buffers."""
        assert self.communication is not None
        where = (self._tick(), self._phase, frames)
        for life in self._lives_of(self.communication.record(call, result, where)):
            life.is_communicated = True

    def parameter_gathered(self, tensor: torch.Tensor) -> None:
        """Record that a tensor holds a gathered parameter, whenever its storage has a size."""
        self._set_kind(tensor, "gathered parameter")

    def storage_resized(self, storage: Any, before_bytes: int) -> None:
        """Record that a storage is freed or allocated without an operator."""
        size_bytes, key = storage.nbytes(), storage._cdata
        life = self._alive.get(key) or self._emptied.get(key)
        if life is None or size_bytes == before_bytes:
            return
        if life.freed_at is None:
            self._free(key, life)
        self._emptied[key] = life
        if size_bytes:
            frames = self._enter(user_frames(BACKWARD_CALL))
            self._add(
                storage, replace(life, bytes=size_bytes, phase=self._phase, op="resize_", frames=frames)
            )

    def forget_calls(self, count: int) -> None:
        """Forget all calls of `step` but the first ones, as if the script had ended there."""
        del self.boundaries[count:], self.work.at_ends[count:]

    def module_registers(self, module: torch.nn.Module, name: str, value: object) -> None:
        self._modules.add(module)

    def step_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if in_backward():  # a hook updates one parameter: neither a phase nor a boundary
            return
        self._phase, self._in_step = "optimizer", True
        self.optimizer_starts.append(self.moments)

    def step_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Record what the optimizer holds; the next step starts here."""
        self.learn_modules()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._set_kind(parameter, "parameter")
                self._set_kind(parameter.grad, "gradient")
                for name, value in optimizer.state.get(parameter, {}).items():
                    self._set_kind(value, "optimizer state", str(name))
        if in_backward():
            return
        self.boundaries.append(self.moments)
        self.work.step_ends()
        self._phase, self._in_step = "forward", False
        self._forward_frames.clear()
        self._after_step(self)

    def learn_modules(self) -> None:
        """Record the parameters and buffers of all modules that are alive."""
        for module in tuple(self._modules):
            for parameter in module._parameters.values():
                self._set_kind(parameter, "parameter")
                self._set_kind(None if parameter is None else parameter.grad, "gradient")
            for buffer in module._buffers.values():
                if not self._is_state(buffer):
                    self._set_kind(buffer, "buffer")

    def _is_state(self, value: object) -> bool:
        """Return True for an optimizer's state: Dynamo registers what a compiled step reads as buffers."""
        return any(life.kind == "optimizer state" for life in self._lives_of(inner_tensors(value)))

    def modules(self) -> tuple[torch.nn.Module, ...]:
        """Return the modules that are alive."""
        return tuple(self._modules)

    def _lives_of(self, tensors: Iterable[torch.Tensor]) -> list[StorageLife]:
        """Return the lifetimes of the recorded storages of tensors."""
        lives = (self._alive.get(tensor.untyped_storage()._cdata) for tensor in tensors)
        return [life for life in lives if life is not None]

    def _read(self, tensors: list[torch.Tensor], is_data: bool, frames: Frames) -> list[StorageLife]:
        """Record inputs of an operator that no operator made, and data that is combined with parameters."""
        if self._phase == "setup" and not is_data and torch.is_grad_enabled():
            self._phase = "forward"
        for tensor in tensors:
            self._record(tensor, "", frames, is_data=not tensor.requires_grad)
        lives = self._lives_of(tensors)
        if self._phase in ("setup", "forward") and not is_data:
            for life in lives:
                life.is_read_by_model = True
        return lives

    def _note_phase(self, func: Any, lives: list[StorageLife], is_data: bool) -> None:
        self.other_phases.operator_runs(
            func,
            lives,
            is_recorded=torch.is_grad_enabled() and not is_data,
            is_backward=self._in_step or self._phase == "backward",
        )

    def _enter(self, frames: Frames) -> Frames:
        """Return the frames of the operator that is about to run, and update the phase."""
        node = current_autograd_node()
        if node is None and in_backward():  # hooks, and callbacks at the end
            return frames if frames.frames else user_frames(OUTERMOST)
        if node is None:
            self._forward_frames.setdefault(next_sequence_number() - 1, frames)
            if self._phase in ("backward", "optimizer") and not self._in_step:
                # With gradients another micro batch begins; without, gradients are clipped.
                self._phase = "forward" if torch.is_grad_enabled() else "optimizer"
            return frames
        if self._phase != "backward" and not self._in_step:
            self.backward_starts.append(self.moments)
            self._phase = "backward"
        if frames.frames:
            return frames
        return self._forward_frames.get(node._sequence_nr()) or user_frames(OUTERMOST)

    def rng_state_is_read(self, state: torch.Tensor) -> None:
        """Record the copy of a generator's state, which checkpoints save and no operator allocates."""
        self._record(state, "torch.get_rng_state", user_frames(BACKWARD_CALL), is_data=False)

    def _record(
        self, tensor: torch.Tensor, op: str, frames: Frames, is_data: bool, least_bytes: int = 0
    ) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        size_bytes = max(storage.nbytes(), least_bytes)
        if key in self._alive or not size_bytes:
            return
        text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        life = StorageLife(size_bytes, 0, self._phase, op, frames, text, tensor.device.type, is_data=is_data)
        self._add(storage, life)

    def _add(self, storage: Any, life: StorageLife) -> None:
        life.created_at, life.freed_at = self._tick(), None
        self._alive[storage._cdata] = life
        self.lives.append(life)
        self.other_phases.storage_allocated(life)
        weakref.finalize(storage, self._free, storage._cdata, life).atexit = False

    def _record_internal(
        self, kind: FitKind, op: str, size_bytes: int, frames: Frames, device: str = "cpu"
    ) -> StorageLife:
        """Record memory that no tensor owns, and return its lifetime."""
        life = StorageLife(size_bytes, self._tick(), self._phase, op, frames, "", device, kind=kind)
        self.lives.append(life)
        self.other_phases.storage_allocated(life)
        return life

    def _free(self, key: int, life: StorageLife) -> None:
        if life.freed_at is None:
            life.freed_at = self._tick()
        for lives in (self._alive, self._emptied):
            if lives.get(key) is life:
                del lives[key]

    def _tick(self) -> int:
        self.moments += 1
        return self.moments - 1

    def _set_kind(self, value: object, kind: FitKind, state: str = "") -> None:
        for life in self._lives_of(inner_tensors(value)):
            life.kind, life.state = kind, state


def _counted(values: object) -> Iterator[torch.Tensor]:
    """Yield the dense tensors that own memory; the inner tensors of a wrapper are counted when it is made."""
    for leaf in pytree.tree_leaves(values):
        if isinstance(leaf, torch.Tensor) and not is_traceable_wrapper_subclass(leaf):
            yield from inner_tensors(leaf)


def _has_unknown_size(leaf: object) -> bool:
    """Return True for a sparse fake tensor of unknown elements: torch makes it without any."""
    return isinstance(leaf, FakeTensor) and leaf.layout is torch.sparse_coo and leaf._nnz() == 0


@contextmanager
def observing_memory(observer: Observer | None = None) -> Iterator[Observer]:
    """Record what operators allocate within the block; a fake mode must be entered outside of it."""
    observer = observer or Observer()
    hooks = (
        register_optimizer_step_pre_hook(observer.step_begins),
        register_optimizer_step_post_hook(observer.step_ends),
        register_module_parameter_registration_hook(observer.module_registers),
        register_module_buffer_registration_hook(observer.module_registers),
    )
    resize = storage_resize_patch(observer.storage_resized)
    rng, copies = rng_state_reads(observer.rng_state_is_read), module_copies(observer.module_registers)
    try:
        with replacing(resize), replacing(rng), replacing(copies), observer:
            yield observer
    finally:
        for hook in hooks:
            hook.remove()
