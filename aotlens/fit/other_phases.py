"""Recognise evaluation and the saving of checkpoints, which are no part of a training step.

Evaluation is a stretch of operators without gradients that starts where one reads a parameter together with
other data, and whose results no operator with gradients reads: so the forward of a teacher, of a reentrant
checkpoint or of an `autograd.Function` is none, nor is a compiled graph of which one result takes part in
training.  Saving begins with `state_dict` or `torch.save`, and lasts
as long as tensors are copied.

Invariant: a stretch is decided when the run has ended.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal

import torch

from aotlens.fit.saved_files import SavedFiles
from aotlens.torch_api.replacements import Replacement, replacing

__all__ = ["OtherPhases", "observing_saves"]

OtherPhase = Literal["evaluation", "checkpoint saving"]
COPIES = frozenset(
    f"aten::{name}"
    for name in ("alias", "clone", "copy_", "detach", "empty", "empty_like", "empty_strided", "lift_fresh")
) | {"aten::_to_copy"}
"""What runs between `state_dict` and the end of saving."""


@dataclass(slots=True, eq=False)
class Call:
    """An operator of a stretch."""

    phase: OtherPhase
    sources: list["Call"]
    """The operators whose results it reads."""
    graph: int | None = None
    """The number of the call of a compiled graph that it belongs to."""
    is_training: bool = False
    """Whether its results take part in a training step."""
    lives: list[Any] = field(default_factory=list)
    """The storages that it allocates."""


class OtherPhases:
    """The stretches of a run; the observer calls the methods."""

    def __init__(self) -> None:
        self._phase: OtherPhase | None = None
        """The phase of the current stretch."""
        self._call: Call | None = None
        self._calls: list[Call] = []
        self._by_life: dict[int, Call] = {}
        self._code: CodeType | None = None
        self._graph_calls = 0
        self._is_saving = False
        self.skipped_saves = 0
        """Calls of `torch.save` that wrote nothing, because fake tensors have no values."""

    def graph_runs(self, code: CodeType | None) -> None:
        """Record which compiled graph calls the operator that runs next; None for eager code."""
        if code is not None and code is not self._code:
            self._graph_calls += 1
        self._code = code

    def operator_runs(self, func: Any, lives: list[Any], *, is_recorded: bool, is_backward: bool) -> None:
        """Continue, end or begin a stretch with an operator that reads these storages.

        `is_recorded` tells whether autograd records it, `is_backward` whether it is part of a backward or of
        an optimizer's step.
        """
        sources = [self._by_life[id(life)] for life in lives if id(life) in self._by_life]
        if is_recorded:
            for source in sources:
                source.is_training = True
        schema = getattr(func, "_schema", None)
        if self._phase is not None and not self._continues(schema, is_backward):
            # the loss of a custom function or a reentrant checkpoint is computed without grad mode
            if self._call is not None and is_backward:
                self._call.is_training = True
            self._phase = None
        kinds = [life.kind for life in lives]
        reads_model = "parameter" in kinds and None in kinds and not getattr(schema, "is_mutable", True)
        if self._phase is None and reads_model and not is_backward and not torch.is_grad_enabled():
            self._phase = "evaluation"
        graph = None if self._code is None else self._graph_calls
        self._call = None if self._phase is None else Call(self._phase, sources, graph)
        if self._call is not None:
            self._calls.append(self._call)

    def _continues(self, schema: Any, is_backward: bool) -> bool:
        if self._phase == "checkpoint saving":
            return self._is_saving or getattr(schema, "name", "") in COPIES
        return not is_backward and not torch.is_grad_enabled()

    def storage_allocated(self, life: Any) -> None:
        if self._call is not None:
            self._call.lives.append(life)
            self._by_life[id(life)] = self._call

    def state_is_read(self) -> None:
        """Begin to save a checkpoint: `state_dict` was called."""
        self._phase = "checkpoint saving"

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Count everything within the block as the saving of a checkpoint."""
        self.state_is_read()
        self._is_saving = True
        try:
            yield
        finally:
            self._is_saving, self._phase, self._call = False, None, None

    def settle(self) -> None:
        """Set the phase of the storages that training does not use."""
        graphs: set[int] = set()
        self._trace_sources()
        while (reached := self._training_graphs()) != graphs:  # a graph may read results of another one
            graphs = reached
            for call in self._calls:
                call.is_training |= call.graph in graphs
            self._trace_sources()
        for call in self._calls:
            if not call.is_training:
                for life in call.lives:
                    life.phase = call.phase

    def _training_graphs(self) -> set[int]:
        """Return the numbers of the calls of compiled graphs of which one result takes part in training."""
        return {call.graph for call in self._calls if call.is_training and call.graph is not None}

    def _trace_sources(self) -> None:
        """Let the operators whose results training reads take part in it."""
        for call in reversed(self._calls):
            if call.is_training:
                for source in call.sources:
                    source.is_training = True


@contextmanager
def observing_saves(phases: OtherPhases, *, is_fake: bool) -> Iterator[None]:
    """Recognise the saving of checkpoints within the block; fake tensors are not written to files."""
    save, load, files = torch.save, torch.load, SavedFiles()

    def save_nothing(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        with phases.saving():
            if is_fake:
                phases.skipped_saves += 1
                files.save(obj, f)
            else:
                save(obj, f, *args, **kwargs)

    def load_saved(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return files.load(f, map_location) if files.holds(f) else load(f, map_location, *args, **kwargs)

    with ExitStack() as stack:
        if is_fake:
            stack.enter_context(
                replacing(Replacement(torch, "load", load_saved, "reads what was not written"))
            )
        why = "files would have no values, and replace the user's" if is_fake else "marks the phase"
        stack.enter_context(replacing(Replacement(torch, "save", save_nothing, why)))
        for owner in (torch.nn.Module, torch.optim.Optimizer):
            replacement = Replacement(
                owner, "state_dict", _noticed(owner.state_dict, phases), "marks the phase"
            )
            stack.enter_context(replacing(replacement))
        yield


def _noticed(state_dict: Callable[..., Any], phases: OtherPhases) -> Callable[..., Any]:
    def read(*args: Any, **kwargs: Any) -> Any:
        phases.state_is_read()
        return state_dict(*args, **kwargs)

    return read
