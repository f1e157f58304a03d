"""One input at the end of the function compared with its entry.

Invariant: eager's own bookkeeping on the fake tensors (`grad_fn`, version counter, sizes) is the evidence; no
rule is about a single operator.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.analysis.records import StorageSwap
from aotlens.capture.builder import Builder
from aotlens.capture.recorded import StorageState
from aotlens.capture.records import AutogradChange, Captured, CapturedInput
from aotlens.capture.storage import Geometry, Write, geometry_of
from aotlens.capture.subclasses import value_like
from aotlens.ir.subclasses import Value
from aotlens.torch_api.autograd import shares_version_counter

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class InputDiff:
    """What differs in one input; a field that is None, empty, 0 or False says that the facet is unchanged."""

    captured: Captured
    input: CapturedInput
    storage: StorageState
    """The storage that it came with."""
    value: Value | None
    """The new data of that storage, or of a swapped one if autograd recorded it."""
    geometry: Geometry | None
    """The new sizes, strides and storage offset; of a swapped storage, the views of `swap` tell them."""
    swap: StorageSwap | None
    """The storage that it has at the end."""
    base: int | None
    """The input or synthetic base that is written to in its place; None if it is written to itself."""
    seen_by_autograd: bool
    """Whether what is written to, the input or its synthetic base, has another `grad_fn`."""
    version_bumps: int
    """By how much its version counter rises, without writes that go through another overlapping input."""
    writes: tuple[Write, ...]
    """All writes to the data, some of which later ones may undo."""
    mutations: tuple[Write, ...]
    """All changes of sizes, strides or storage."""

    @property
    def argument(self) -> Any:
        """The fake tensor at the end of the function."""
        return self.input.argument

    @property
    def autograd(self) -> AutogradChange:
        """What the function did to the tensor itself in autograd; a recorded write is `seen_by_autograd`."""
        return self.input.at_exit.autograd

    @property
    def requires_grad(self) -> bool:
        """Whether it requires grad at the end of the function."""
        return self.input.at_exit.requires_grad

    @property
    def is_written(self) -> bool:
        """Whether there is a new value or geometry, which the graph or the wrapper gives to the tensor."""
        return self.value is not None or self.geometry is not None

    @property
    def written(self) -> CapturedInput:
        """What is written to: the input, or the input or synthetic base that it is a view of."""
        return self.input if self.base is None else self.captured.inputs[self.base]

    @property
    def own_mutations(self) -> tuple[Write, ...]:
        """The metadata mutations of the tensor itself, or of what it is a view of."""
        chain = self.captured.recorded.tracked(self.argument).chain
        return tuple(move for move in self.mutations if move.chain == chain[: len(move.chain)])

    @property
    def views(self) -> Iterator[CapturedInput]:
        """The other inputs that are views of it and require grad."""
        for view in self.captured.inputs:
            if view.exit is not None and view.requires_grad and view.exit.view_base is self.argument:
                yield view


def diff_input(captured: Captured, builder: Builder, index: int, swap: StorageSwap | None) -> InputDiff:
    """Compare an input that is a tensor, and no duplicate, with its entry."""
    captured_input = captured.inputs[index]
    storage, argument, wrapped = captured_input.storage, captured_input.argument, captured_input.wrapped
    assert storage is not None  # since it is a tensor
    base = captured_input.base if swap is None else None
    seen_by_autograd = (captured_input if base is None else captured.inputs[base]).has_new_grad_fn
    writes = storage.writes
    value: Value | None = None
    if wrapped is not None:
        current = value_like(builder, argument, wrapped)
        value = current if current.nodes() != wrapped.nodes() else None
        inner_storages = captured.recorded.inner_storages(argument)
        writes = tuple(write for inner in inner_storages for write in inner.writes)
    elif swap is not None and seen_by_autograd:  # the new storage is returned separately, detached
        value = builder.emit(aten.clone.default, builder.node_of(argument))
    elif has_new_data(captured_input) and not (swap is not None and captured_input.base is not None):
        value = storage.base
    return InputDiff(
        captured=captured,
        input=captured_input,
        storage=storage,
        value=value,
        geometry=geometry_after(captured_input) if swap is None else None,
        swap=swap,
        base=base,
        seen_by_autograd=seen_by_autograd,
        version_bumps=_version_group_bumps(captured, index),
        writes=writes,
        mutations=storage.metadata_mutations,
    )


def geometry_after(captured_input: CapturedInput) -> Geometry | None:
    """Return the geometry at the end of the function; None if it is unchanged."""
    geometry = captured_input.at_exit.geometry
    return geometry if geometry != geometry_of(captured_input.fake) else None


def has_new_data(captured_input: CapturedInput) -> bool:
    """Return True if the storage that the input had at entry holds another value at the end."""
    storage: Any = captured_input.storage
    return storage.version > 0 and storage.base is not captured_input.node and storage.bytes_after != 0


def _version_group_bumps(captured: Captured, index: int) -> int:
    """Return by how much the wrapper raises the input's version counter; overlapping inputs share one."""
    captured_input = captured.inputs[index]
    bumps, storage = captured_input.version_bumps, captured_input.storage
    overlaps = storage is not None and storage.overlapping_inputs
    return _writes_through_input(captured, index, bumps) if bumps and overlaps else bumps


def _writes_through_input(captured: Captured, index: int, bumps: int) -> int:
    """Count the writes through an overlapping input, or a view of it, that went through no nearer input.

    Only inputs that share its version counter take writes from it, which the `.data` of another does not.
    A view whose storage is swapped still counts for its base: the first input takes such writes.
    """
    storage, argument = captured.inputs[index].storage, captured.inputs[index].argument
    assert storage is not None  # since it is a tensor
    chains = {
        other: chain
        for other, chain in captured.inputs_on(storage).items()
        if shares_version_counter(captured.inputs[other].argument, argument)
    }
    nearest = list[int]()
    for write in (*storage.writes, *(move for move in storage.metadata_mutations if move.is_counted)):
        through = [i for i, chain in chains.items() if write.chain[: len(chain)] == chain]
        nearest += [max(through, key=lambda input_index: len(chains[input_index]))] if through else []
    elsewhere = bumps - len(nearest)
    return nearest.count(index) + (elsewhere if index == next(iter(chains)) and elsewhere > 0 else 0)
