"""What a recording knows at one moment, as values that later stages read.

    StorageState   one storage: its current value, the writes to it, the inputs on it
    TensorState    one tensor: its storage, the views that lead to it, its node
    Recorded       the whole recording: nodes, tensors, and what autograd and operators do not show

A recording stays open until its backward, and later its derivatives, are recorded; the stages that add nodes
take it as their `builder`.  What they read comes from here: capture takes one when the function has returned
(`Captured.recorded`), and joint another one when the backward is recorded (`JointProgram.recorded`).

Which tensors have a state:
    fake tensors that operators took or returned, arguments, outputs      their own
    the base of a view, and the tensor that a storage was first seen as   its own
    a real tensor of the user's                                           that of its constant
    a wrapper subclass                                                    its own, and one per inner tensor

Invariant: nothing here changes when the recording goes on; two tensors share a storage exactly when their
states share a `StorageState`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from aotlens.capture.graph import TRACKED_ATTRIBUTE
from aotlens.capture.operators import Decompositions
from aotlens.capture.recorder import Call, Recorder
from aotlens.capture.storage import Storage, Tracked, Write, is_larger, new_size
from aotlens.capture.subclasses import inner_tensors, is_wrapper
from aotlens.capture.views import ViewStep
from aotlens.ir.program import Node
from aotlens.ir.regions import Region
from aotlens.model.report import Span
from aotlens.torch_api.fake import FakeTensor, FakeTensorMode
from aotlens.unsupported import unsupported


@dataclass(frozen=True, slots=True, eq=False)
class StorageState:
    """One storage at one moment."""

    base: Node
    """The value of the tensor that the storage was first seen as."""
    base_tensor: Any
    """That tensor."""
    inputs: tuple[int, ...]
    """Flat inputs on this storage; empty for an intermediate."""
    wrapper_name: str
    """The user's name of a wrapper subclass that it lies in; empty for all others."""
    version: int
    """How many writes it has had."""
    writes: tuple[Write, ...]
    metadata_mutations: tuple[Write, ...]
    """Changes of a tensor's sizes or strides."""
    is_enlarged: bool
    """Whether an operator gave the tensor more elements than it came with (`resize_`, `out=`)."""
    bytes_before: Any
    """Its size before the first resize; None when it is never resized."""
    bytes_after: Any
    """Its size as the last resize left it."""
    overlapping_inputs: Mapping[tuple[ViewStep, ...], Node]
    """Graph inputs that lie on this storage and overlap, by chain."""
    is_inference_tensor: bool
    """Whether the caller's is an inference tensor although the fake one is not, as behind Dynamo."""
    needs_inference_mode: bool
    """Whether it is written to where the caller's mode decides if eager accepts that."""

    @property
    def new_bytes(self) -> Any:
        """The size that the function leaves; None when it is unchanged.  A symbolic one is not compared."""
        return new_size(self.bytes_before, self.bytes_after)

    @property
    def grows(self) -> bool:
        """Whether the function leaves it larger than it was; False where only symbols decide."""
        return is_larger(self.bytes_before, self.bytes_after)


@dataclass(frozen=True, slots=True, eq=False)
class TensorState:
    """One tensor at one moment."""

    tensor: Any
    """The tensor itself, so that its identity stays its own."""
    storage: StorageState
    chain: tuple[ViewStep, ...]
    """The views that lead to it from the storage's base."""
    node: Node
    """Its value at the storage's version `version`."""
    version: int
    """Older than the storage's where the value must be looked up again after a write."""
    writable_outside_inference_mode: bool
    """An inference tensor that may be written to with inference mode off."""

    @property
    def is_current(self) -> bool:
        """Whether no write to the storage has made the node out of date."""
        return self.version == self.storage.version


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """One recording at one moment."""

    fake_mode: FakeTensorMode
    nodes: tuple[Node, ...]
    tensors: Mapping[int, TensorState]
    """By the identity of the tensor."""
    objects: Mapping[int, Node]
    """Nodes of generators, and of the fakes of torchbind objects, by identity."""
    regions: tuple[Region, ...]
    """The marked regions with a gradient, each once."""
    decompositions: Decompositions
    decomposed: bool
    """Whether any operator was decomposed."""
    data_symbols: frozenset[Any]
    """Symbols of numbers that only the data decides."""
    random_device: torch.device | None
    """The device whose random numbers are functions of a seed and an offset; None where there are none."""
    swapped_tensors: tuple[Any, ...]
    """Tensors that got another storage."""
    resized_leaves: tuple[tuple[Any, int, Span | None], ...]
    """Leaves that got a storage of another size (`.data`): how many operators had run, and where."""
    reset_leaves: tuple[Any, ...]
    """Leaves whose autograd edge `set_` made anew."""
    reset_leaves_with_gradient: tuple[Any, ...]
    """Of `reset_leaves` those whose gradient arrives at the new edge; empty before the backward."""
    views_before_detach: tuple[tuple[ViewStep, ...], ...]
    """Chains of views whose tensor lost its `grad_fn` after they were made."""
    detached: tuple[tuple[Any, Span | None, int], ...]
    """Tensors that lost their `grad_fn` in place, where, and after how many operators."""
    outputs_requiring_grad: frozenset[int]
    """Identities of the outputs that require grad, noted where views lost their tensor's `grad_fn`."""
    inference_data_spans: tuple[Span | None, ...]
    """Where inference tensors got another storage (`.data`), since when they count no versions."""
    has_hidden_changes: bool
    """Whether a tensor that requires grad was changed in a way that autograd cannot see (`.data`)."""

    def tracked(self, tensor: Any) -> TensorState:
        """The state of a tensor.

        Raises:
            UnsupportedError: a tensor that the recording has not seen.
        """
        state = self.tensors.get(id(tensor))
        if state is None:
            raise unsupported("unexpected-fake", None)
        return state

    def find(self, tensor: Any) -> TensorState | None:
        """The state of a tensor; None if the recording has not seen it."""
        return self.tensors.get(id(tensor))

    def inner_storages(self, tensor: Any) -> Iterator[StorageState]:
        """The storages of the plain tensors inside a wrapper."""
        for _, inner in inner_tensors(tensor):
            state = self.find(inner)
            if state is not None:
                yield state.storage

    def requires_grad(self, output: Any) -> bool:
        """Whether an output requires grad as eager's does."""
        return id(output) in self.outputs_requiring_grad or bool(output.requires_grad)

    def is_view_of_detached(self, tensor: Any) -> bool:
        """Whether its base was detached in place after the tensor, or one that it is a view of, was made."""
        chain = self.tracked(tensor).chain
        return any(
            len(detached_chain) <= len(chain)
            and all(step is other for step, other in zip(detached_chain, chain, strict=False))
            for detached_chain in self.views_before_detach
        )

    def was_detached(self, tensor: Any) -> bool:
        """Whether the tensor was detached in place."""
        return any(detached is tensor for detached, *_ in self.detached)

    def span_of_detaching(self, tensor: Any) -> Span | None:
        """The user's expression that detached the tensor last; None where none did."""
        return next((span for detached, span, _ in reversed(self.detached) if detached is tensor), None)

    def calls_before_detaching(self, tensor: Any) -> int:
        """How many operators had run when the tensor was detached last."""
        return next((calls for detached, _, calls in reversed(self.detached) if detached is tensor), 0)


class Snapshot:
    """One moment of a recording: each storage and each tensor has one state in it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._storages: dict[int, StorageState] = {}
        self._tensors: dict[int, TensorState] = {}

    def take(self, tensors: Iterable[Any]) -> Recorded:
        """What the recorder knows now, with the states of these tensors and of what they are views of."""
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
            swapped_tensors=tuple(recorder.swapped_tensors),
            resized_leaves=recorder.resized_leaves,
            reset_leaves=tuple(recorder.reset_leaves),
            reset_leaves_with_gradient=recorder.reset_leaves_with_gradient,
            views_before_detach=tuple(recorder.views_before_detach),
            detached=tuple(recorder.detached),
            outputs_requiring_grad=recorder.outputs_requiring_grad,
            inference_data_spans=recorder.inference_data_spans,
            has_hidden_changes=recorder.has_hidden_changes,
        )

    def storage(self, storage: Storage) -> StorageState:
        """The state of a storage."""
        state = self._storages.get(id(storage))
        if state is None:
            state = self._storages[id(storage)] = _storage_state(storage)
        return state

    def _states(self, tensors: Iterable[Any]) -> dict[int, TensorState]:
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
        for alias, tensor in self._recorder.known_constants():
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
        tracked: Tracked | None = getattr(tensor, TRACKED_ATTRIBUTE, None)
        if tracked is not None and getattr(tracked.storage, "base", None) is not None:
            return tracked
        return self._recorder.tracked(tensor) if is_wrapper(tensor) else None


def tensors_of_calls(calls: Iterable[Call]) -> Iterator[Any]:
    """The tensors that operators took and returned, repeats included."""
    for _, args, kwargs, result, _ in calls:
        yield from _tensors_in((*args, *kwargs.values(), result))


def _tensors_in(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors_in(value)


def _storage_state(storage: Storage) -> StorageState:
    return StorageState(
        base=storage.base,
        base_tensor=storage.base_tensor,
        inputs=storage.inputs,
        wrapper_name=storage.wrapper_name,
        version=storage.version,
        writes=tuple(storage.writes),
        metadata_mutations=tuple(storage.metadata_mutations),
        is_enlarged=storage.is_enlarged,
        bytes_before=storage.bytes_before,
        bytes_after=storage.bytes_after,
        overlapping_inputs=MappingProxyType(dict(storage.overlapping_inputs)),
        is_inference_tensor=storage.is_inference_tensor,
        needs_inference_mode=storage.needs_inference_mode,
    )
