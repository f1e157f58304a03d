"""Inputs that have another storage at the end of the function than at entry.

Invariant: other tensors on the storage that an input takes over still share it after the call.
"""

from typing import Any

import torch

from aotlens.analysis.bases import Bases
from aotlens.analysis.input_reads import is_used_between
from aotlens.analysis.records import BaseInfo, InputBase, StorageSwap
from aotlens.capture.builder import Builder
from aotlens.capture.events import EventKind
from aotlens.capture.recorded import StorageState
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import view_base
from aotlens.capture.subclasses import value_of
from aotlens.capture.views import views_after
from aotlens.model.report import Span
from aotlens.torch_api.autograd import has_version_counter
from aotlens.unsupported import unsupported


def is_storage_swapped(captured: Captured, captured_input: CapturedInput) -> bool:
    """Return True if the function gave the input another storage."""
    if (
        captured_input.storage is None
        or captured_input.duplicate_of is not None
        or captured_input.wrapped is not None
    ):
        return False
    if captured_input.at_exit.storage is not captured_input.storage:
        return True
    if captured_input.base is not None and captured.recorded.events.has(
        EventKind.STORAGE_SWAP, captured_input.argument
    ):
        return True
    if captured_input.argument.untyped_storage()._cdata != captured_input.fake.untyped_storage()._cdata:
        raise unsupported(
            "storage-mutation-of-input",
            span_of_storage_swap(captured, captured_input.argument),
            input=captured_input.slot.name,
        )
    return False


def span_of_storage_swap(captured: Captured, tensor: Any) -> Span | None:
    """Return the span of the last expression that gave the tensor another storage, or of the function."""
    return captured.span_of(EventKind.STORAGE_SWAP, tensor)


def check_version_counters(captured: Captured) -> None:
    """Check that every tensor at the end of the function has a version counter, or is an inference tensor.

    Raises:
        UnsupportedError: one has none, since its `.data` was assigned an inference tensor.
    """
    first = next(captured.recorded.events.of(EventKind.INFERENCE_DATA), None)
    if first is None:
        return
    final_values = (
        *captured.outputs,
        *(captured_input.argument for captured_input in captured.inputs if captured_input.is_tensor),
    )
    tensors = (
        value for value in final_values if isinstance(value, torch.Tensor) and not value.is_inference()
    )
    if not all(has_version_counter(value) for value in tensors):
        raise unsupported("data-outside-inference-mode", first.span)


def check_sizes_of_data(captured: Captured) -> None:
    """Check that no use which autograd recorded precedes data of other sizes.

    The backward would read the new data where it saved the tensor; a leaf's gradient has the former sizes.

    Raises:
        UnsupportedError: there is such a use.
    """
    for event in captured.recorded.events.of(EventKind.DATA_OF_OTHER_SIZES):
        if is_used_between(captured, event.tensor, last=event.call):
            captured_input = captured.input_of(event.tensor)
            name = "a tensor" if captured_input is None else f"`{captured_input.slot.name}`"
            raise unsupported("data-of-other-sizes-after-read", event.span, tensor=name)


def check_set_views(captured: Captured) -> None:
    """Check that autograd records no use of a view after `set_` gave it another geometry.

    Eager regenerates the view's `grad_fn` with its own sizes and strides; the recorded backward replays the
    view operators.

    Raises:
        UnsupportedError: there is such a use.
    """
    for event in captured.recorded.events.of(EventKind.VIEW_SET_TO_OTHER_GEOMETRY):
        if event.tensor.requires_grad and is_used_between(captured, event.tensor, first=event.call):
            raise unsupported("invalid-view", event.span, where="")


def find_storage_swaps(captured: Captured, builder: Builder, bases: Bases) -> dict[int, StorageSwap]:
    """Return the storage swaps by input; hidden outputs, which become bases, carry the new storages."""
    check_version_counters(captured)
    check_sizes_of_data(captured)
    return {
        index: _storage_swap(captured, builder, bases, captured_input)
        for index, captured_input in enumerate(captured.inputs)
        if is_storage_swapped(captured, captured_input)
    }


def _storage_swap(
    captured: Captured, builder: Builder, bases: Bases, captured_input: CapturedInput
) -> StorageSwap:
    """Describe the storage that an input ends on: another input's, or an intermediate's (a hidden output)."""
    tracked = captured.recorded.tracked(captured_input.argument)
    storage, chains = tracked.storage, captured.inputs_on(tracked.storage)
    leading = {
        index: views
        for index, chain in chains.items()
        if (views := views_after(chain, tracked.chain)) is not None
    }
    if leading:  # views of the input from which the fewest lead there
        nearest = min(leading, key=lambda index: len(leading[index]))
        return StorageSwap(InputBase(nearest), leading[nearest])
    if chains:
        raise unsupported(
            "storage-of-several-inputs",
            span_of_storage_swap(captured, captured_input.argument),
            input=captured_input.slot.name,
        )
    base = bases.of(storage)
    if base is None:
        tensor = _differentiable(captured, storage)
        value = storage.base if tensor is None else value_of(builder, tensor)
        base = bases.hide(BaseInfo(value, tensor), storage)
    tensor = bases.tensor(base)
    base_chain = () if tensor is None else captured.recorded.tracked(tensor).chain
    views = views_after(base_chain, tracked.chain)
    if views is None:
        raise unsupported(
            "geometry-change-after-storage-swap",
            storage.metadata_mutations[-1].origin.location.innermost,
            input=captured_input.slot.name,
        )
    return StorageSwap(base, views)


def _differentiable(captured: Captured, storage: StorageState) -> Any:
    """Return the storage's first tensor if an output with a gradient is on the storage; else None."""
    exits = [captured.exit_of(output) for output in captured.outputs_in(storage)]
    views = [at_exit for at_exit in exits if at_exit.start is view_base(storage.base_tensor)]
    return storage.base_tensor if any(at_exit.requires_grad for at_exit in views) else None


def storage_swap_base(captured: Captured, storage_swaps: dict[int, StorageSwap], value: Any) -> int | None:
    """Return the input whose swapped storage and autograd base the output shares; None if there is none."""
    storage = captured.recorded.tracked(value).storage
    for input_index in storage_swaps if captured.exit_of(value).view_base is not None else ():
        argument = captured.inputs[input_index].argument
        if (
            captured.exit_of(value).start is view_base(argument)
            and captured.inputs[input_index].at_exit.storage is storage
        ):
            return input_index
    return None


def nearest_input(captured: Captured, value: Any, storage: StorageState) -> int:
    """Return the input on a storage from which the wrapper regenerates the output.

    That is one in the output's autograd graph, if possible one from which views lead to the output and that
    adds no gradient to it; of several, the one with the longest chain of its own.
    """
    chains = captured.inputs_on(storage)
    output_chain = captured.recorded.tracked(value).chain

    def distance(input_index: int) -> tuple[bool, bool, bool, int]:
        captured_input = captured.inputs[input_index]
        views = views_after(chains[input_index], output_chain)
        is_related = view_base(captured_input.argument) is captured.exit_of(value).start
        gains_grad = captured_input.at_exit.requires_grad and not captured.exit_of(value).requires_grad
        return not is_related, views is None, gains_grad, len(output_chain) - len(chains[input_index])

    return min(chains, key=distance)
