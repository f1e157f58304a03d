"""Custom `autograd.Function`s: Dynamo's two graphs, and inputs that a user's backward reads or writes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx
from torch.autograd import Function

from aotlens.capture.provenance.origins import Origins
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import OpenInput
from aotlens.capture.storage import Storage, Tracked, find_tracked
from aotlens.ir.program import Node, ProgramInput
from aotlens.ir.slots import CurrentInput
from aotlens.torch_api.autograd import current_autograd_node


def apply_function(origins: Origins, graphs: tuple[Any, Any], args: Any, options: dict[str, Any]) -> Any:
    """Run the forward graph and register the backward graph with autograd.

    `options` are indices: of the saved values whose version autograd checks when the backward reads them, and
    of the outputs that are written inputs (dirty) or have no gradient.
    """
    forward_graph, backward_graph = graphs
    checked_indices, saved_values = set(options["saved_for_backward_idx"]), list[Any]()

    class Applied(Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            output, saved = fx.Interpreter(forward_graph).run(*args)
            saved_values[:] = saved
            return output

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            results = output if isinstance(output, (tuple, list)) else (output,)
            if options.get("dirty_idx"):
                ctx.mark_dirty(*(results[index] for index in options["dirty_idx"]))
            if options["non_differentiable_idx"]:
                ctx.mark_non_differentiable(*(results[index] for index in options["non_differentiable_idx"]))
            ctx.checked = [
                index
                for index, value in enumerate(saved_values)
                if index in checked_indices and isinstance(value, Tensor)
            ]
            ctx.save_for_backward(*(saved_values[index] for index in ctx.checked))
            ctx.others = [None if index in ctx.checked else value for index, value in enumerate(saved_values)]
            saved_values.clear()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            saved = list(ctx.others)
            for index, value in zip(ctx.checked, ctx.saved_tensors, strict=True):
                saved[index] = value
            with origins.user_code():
                return fx.Interpreter(backward_graph).run(*gradients, *saved)

    return Applied.apply(*args)


@dataclass(slots=True, eq=False)
class _CurrentInput:
    """The storage of one input while the backward is recorded."""

    captured_input: OpenInput
    node: Node
    base_before: Node
    """The storage's value after the forward."""
    version: int
    """The storage's version after the forward."""
    is_saved: bool = False

    @property
    def storage(self) -> Storage:
        assert self.captured_input.storage is not None  # guaranteed by `_is_followed`
        return self.captured_input.storage


class CurrentInputs:
    """The inputs that user code in the backward has accessed so far."""

    def __init__(self, recorder: Recorder, inputs: Iterable[OpenInput]) -> None:
        self._recorder = recorder
        self._by_storage = {
            id(captured_input.storage): captured_input
            for captured_input in inputs
            if _is_followed(captured_input)
        }
        self._current_inputs: dict[int, _CurrentInput] = {}
        """By the identity of the storage."""
        self._saved: dict[int, bool] = {}
        """Whether the custom function that first accessed a storage had saved a tensor on it."""
        self._in_progress: dict[int, bool] = {}
        """Storages that `_is_saved` is checking, and whether they were accessed meanwhile."""

    def note_access(self, tracked: Tracked, is_write: bool = False) -> None:
        """Note that the backward is about to read a tensor, or to write to it."""
        storage = tracked.storage
        captured_input = self._by_storage.get(id(storage))
        if id(storage) in self._current_inputs or captured_input is None or captured_input.node is None:
            return
        is_saved = not self._recorder.origins.in_user_backward or self._is_saved(storage)
        if is_saved and not (is_write and storage.version):
            return
        name = self._recorder.name(f"{captured_input.node.name}_now")
        node = Node(name, None, (), {}, captured_input.fake.detach(), self._recorder.origin)
        self._current_inputs[id(storage)] = _CurrentInput(
            captured_input, node, storage.base, storage.version, is_saved
        )
        if not is_saved:
            storage.base, storage.views = node, {}
            storage.version += 1

    def _is_saved(self, storage: Storage) -> bool:
        """Return True if the first function that accessed the storage saved it; a later write would raise.
        Reading `saved_tensors` runs the unpack hooks; a storage that these access counts as saved.
        """
        key = id(storage)
        if key in self._in_progress:
            self._in_progress[key] = True
            return True
        if key not in self._saved:
            self._in_progress[key] = False
            is_saved = _is_saved_here(storage)
            self._saved[key] = self._in_progress.pop(key) or is_saved
        return self._saved[key]

    def restore_unwritten(self) -> dict[int, Node]:
        """Turn inputs that neither pass wrote to into plain inputs again, so that autograd checks them.

        Returns the node to read in place of each that stood for such an input, by identity.
        """
        same: dict[int, Node] = {}
        for key, current in list(self._current_inputs.items()):
            storage = current.storage
            if current.version or storage.version != current.version + 1:
                continue
            del self._current_inputs[key]
            storage.base, storage.views, storage.version = current.base_before, {}, current.version
            same[id(current.node)] = current.base_before
        return same

    def target(self, storage: Storage) -> Node | None:
        """Return the node that a write in the backward targets; None if only autograd reads the input."""
        current = self._current_inputs.get(id(storage))
        return current.node if current is not None else None

    def is_written(self, storage: Storage, version: int) -> bool:
        """Return True if the backward wrote to a storage that had this version after the forward."""
        current = self._current_inputs.get(id(storage))
        is_rebased = current is not None and not current.is_saved
        return storage.version != version + is_rebased

    def inputs(self) -> tuple[ProgramInput, ...]:
        """Return the joint program's inputs for the accessed inputs."""
        return tuple(
            ProgramInput(
                current.node,
                CurrentInput(
                    current.captured_input.slot.name, current.captured_input.slot.index, current.is_saved
                ),
            )
            for current in self._current_inputs.values()
        )


def _is_followed(captured_input: OpenInput) -> bool:
    """Return True if the graph takes the input itself and the forward keeps its metadata and storage."""
    storage = captured_input.storage
    if storage is None or captured_input.wrapped is not None or not captured_input.is_graph_input:
        return False
    if captured_input.duplicate_of is not None or storage.metadata_mutations:
        return False
    return storage.on_base or not storage.overlapping_inputs


def _is_saved_here(storage: Storage) -> bool:
    """Return True if the custom function whose backward runs saved a tensor on the storage."""
    try:
        saved = getattr(current_autograd_node(), "saved_tensors", None) or ()
    except RuntimeError:  # a saved tensor was written to; reading it raises the error
        return False
    saved_records: list[Any] = [find_tracked(tensor) for tensor in saved]
    return any(tracked is not None and tracked.storage is storage for tracked in saved_records)
