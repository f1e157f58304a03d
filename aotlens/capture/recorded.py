"""A recording at one moment, as frozen records that later stages read.

    StorageState   one storage: its current value, the writes to it, the inputs on it
    TensorState    one tensor: its storage, the views that lead to it, its node
    Recorded       the whole recording: nodes, tensors, and what autograd and operators do not show

A recording stays open until its backward, and later its derivatives, are recorded; the stages that add nodes
take it as their `builder`.  What they read comes from here: capture takes one when the function has returned
(`Captured.recorded`), and joint another one when the backward is recorded (`JointProgram.recorded`).

Which tensors have a state:
    arguments, outputs, leaves that the function created                  their own
    a fake tensor that no operator returned                               its own
    the base of a view, and the tensor that a storage was first seen as   its own
    a real tensor of the user's                                           that of its constant
    a wrapper subclass                                                    its own, and one per inner tensor

Invariant: nothing here changes when the recording continues; two tensors share a storage exactly when their
states share a `StorageState`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import torch

from aotlens.capture.autograd.graph_walk import may_be_leaf
from aotlens.capture.events import Call, EventKind, Events
from aotlens.capture.operators import Decompositions
from aotlens.capture.recorder import Recorder
from aotlens.capture.storage import Storage, Tracked, Write, find_tracked
from aotlens.capture.subclasses import inner_tensors, is_wrapper
from aotlens.capture.views import ViewStep
from aotlens.ir.program import Node
from aotlens.ir.regions import Region
from aotlens.torch_api.fake.tensors import FakeTensor, FakeTensorMode
from aotlens.torch_api.operators import tensor_leaves
from aotlens.unsupported import unsupported


@dataclass(frozen=True, slots=True, eq=False)
class StorageState:
    """One storage at one moment: these fields of its `Storage`."""

    base: Node
    """The current value of the first tensor that was recorded on the storage."""
    base_tensor: Any
    """That tensor."""
    inputs: tuple[int, ...]
    """Flat inputs on this storage; empty for an intermediate."""
    wrapper_name: str
    """The user's name of the wrapper subclass that contains it; empty for all others."""
    version: int
    """The number of writes."""
    writes: tuple[Write, ...]
    metadata_mutations: tuple[Write, ...]
    """Changes of a tensor's sizes, strides or storage."""
    is_enlarged: bool
    """Whether an operator gave the tensor more elements than it had initially (`resize_`, `out=`)."""
    bytes_before: Any
    """Its size before the first resize; None if it is never resized."""
    bytes_after: Any
    """Its size after the last resize."""
    overlapping_inputs: Mapping[tuple[ViewStep, ...], Node]
    """Overlapping graph inputs on this storage, by chain."""
    is_inference_tensor: bool
    """Whether the caller's tensor is an inference tensor although the fake is not, as behind Dynamo."""
    needs_inference_mode: bool
    """Whether a write to it is valid only if the caller's inference mode is on."""

    @property
    def new_bytes(self) -> Any:
        """The size that the function leaves; None if it is unchanged.  A symbolic size is not compared."""
        is_unchanged = type(self.bytes_after) is int and self.bytes_after == self.bytes_before
        return None if is_unchanged else self.bytes_after

    @property
    def grows(self) -> bool:
        """Whether the function enlarges it; False if only symbols could tell."""
        before, after = self.bytes_before, self.bytes_after
        return type(before) is int and type(after) is int and 0 <= before < after


@dataclass(frozen=True, slots=True, eq=False)
class TensorState:
    """One tensor at one moment."""

    tensor: Any
    """The tensor itself, which keeps its identity unique."""
    storage: StorageState
    chain: tuple[ViewStep, ...]
    """The views that lead to it from the storage's base."""
    node: Node
    """The node of its value at `version`."""
    version: int
    """The storage's version at which `node` was current."""
    writable_outside_inference_mode: bool
    """Whether it is an inference tensor that may be written to with inference mode off."""

    @property
    def is_current(self) -> bool:
        """Whether the node is current: no later write to the storage."""
        return self.version == self.storage.version


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """One recording at one moment."""

    fake_mode: FakeTensorMode
    nodes: tuple[Node, ...]
    tensors: Mapping[int, TensorState]
    """By identity of the tensor."""
    objects: Mapping[int, Node]
    """Nodes of generators and of fake torchbind objects, by identity."""
    regions: tuple[Region, ...]
    """The marked regions with a gradient, each once."""
    decompositions: Decompositions
    decomposed: bool
    """Whether any operator was decomposed."""
    data_symbols: frozenset[Any]
    """Symbols of data-dependent numbers."""
    random_device: torch.device | None
    """The device whose random numbers are functions of a seed and an offset; None if there is none."""
    events: Events
    """What happened to single tensors and no node shows."""

    def tracked(self, tensor: Any) -> TensorState:
        """Return the state of a tensor.

        Raises:
            UnsupportedError: the tensor is not part of the recording.
        """
        state = self.tensors.get(id(tensor))
        if state is None:
            raise unsupported("unexpected-fake", None)
        return state

    def find(self, tensor: Any) -> TensorState | None:
        """Return the state of a tensor; None if it is not part of the recording."""
        return self.tensors.get(id(tensor))

    def inner_storages(self, tensor: Any) -> Iterator[StorageState]:
        """Yield the storages of a wrapper's inner tensors."""
        for _, inner in inner_tensors(tensor):
            state = self.find(inner)
            if state is not None:
                yield state.storage

    def is_view_of_detached(self, tensor: Any) -> bool:
        """Return True if the tensor is a view whose base was detached in place afterwards."""
        chain = self.tracked(tensor).chain
        return any(
            len(event.chain) <= len(chain)
            and all(step is other for step, other in zip(event.chain, chain, strict=False))
            for event in self.events.of(EventKind.VIEW_BEFORE_DETACH)
        )


class Snapshot:
    """One moment of a recording: it has one state for each storage and each tensor."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._storages: dict[int, StorageState] = {}
        self._tensors: dict[int, TensorState] = {}

    def take(self, tensors: Iterable[Any]) -> Recorded:
        """Return the recording's current state, including the states of these tensors and their bases."""
        recorder = self._recorder
        return Recorded(
            fake_mode=recorder.fake_mode,
            nodes=tuple(recorder.nodes),
            tensors=MappingProxyType(self._states(tensors)),
            objects=MappingProxyType(dict(recorder.objects)),
            regions=recorder.split_regions(),
            decompositions=recorder.decompositions,
            decomposed=recorder.decomposed,
            data_symbols=frozenset(recorder.symbols.read_from_data),
            random_device=recorder.random.functional.device,
            events=recorder.events,
        )

    def storage(self, storage: Storage) -> StorageState:
        """Return the state of a storage."""
        state = self._storages.get(id(storage))
        if state is None:
            state = self._storages[id(storage)] = StorageState(*_storage_fields(storage))
        return state

    def _states(self, tensors: Iterable[Any]) -> dict[int, TensorState]:
        """Return the states of the tensors, their bases and inner tensors, and the user's real tensors."""
        states, waiting = self._tensors, list(tensors)
        while waiting:
            tensor = waiting.pop()
            tracked = None if id(tensor) in states else self._tracked(tensor)
            if tracked is None:
                continue
            states[id(tensor)] = self._state(tensor, tracked)
            if id(tracked.storage.base_tensor) not in states:
                waiting.append(tracked.storage.base_tensor)
            if tensor._base is not None:
                waiting.append(tensor._base)
            if type(tensor) is not FakeTensor:
                waiting.extend(inner for _, inner in inner_tensors(tensor) if inner is not tensor)
        for alias, tensor in self._recorder.real_tensors.values():
            states.setdefault(id(tensor), self._state(tensor, self._recorder.tracked(alias)))
        return states

    def _state(self, tensor: Any, tracked: Tracked) -> TensorState:
        return TensorState(
            tensor,
            self.storage(tracked.storage),
            tracked.chain,
            tracked.node,
            tracked.version,
            tracked.writable_outside_inference_mode,
        )

    def _tracked(self, tensor: Any) -> Tracked | None:
        tracked: Tracked | None = find_tracked(tensor)
        if tracked is not None and getattr(tracked.storage, "base", None) is not None:
            return tracked
        return self._recorder.tracked(tensor) if is_wrapper(tensor) else None


def leaves_and_unreturned(calls: Iterable[Call]) -> Iterator[Any]:
    """Yield leaves that the function created, and tensors that operators took and none returned."""
    returned = set[int]()
    for call in calls:
        for tensor in tensor_leaves((call.args, call.kwargs)):
            if id(tensor) not in returned:
                yield tensor
        for tensor in tensor_leaves(call.result):
            returned.add(id(tensor))
            if tensor.requires_grad and may_be_leaf(tensor):
                yield tensor


_storage_fields = attrgetter(*(field.name for field in fields(StorageState)))
"""Returns what a state takes from its storage."""
