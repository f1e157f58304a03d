"""Outputs that have their own `grad_fn` on a storage that other tensors share.

Such a tensor was detached and then written to, or was put on the storage by `.data =`.  Invariant: the graph
returns it as a separate base; the wrapper copies that base to a view of the shared storage (which already
holds the same values) so that autograd sees it, or assigns it there.
"""

from dataclasses import replace
from typing import Any

import torch

from aotlens.analysis.bases import Bases
from aotlens.analysis.leaves import passes_custom_function
from aotlens.analysis.output_diff import Start, alias_of, reinterpreted_as, relative_chain
from aotlens.analysis.records import (
    AliasBase,
    BaseInfo,
    DetachedStorage,
    InputBase,
    IntermediateBaseOf,
    OutputAliasInfo,
    OutputType,
)
from aotlens.analysis.storage_swaps import span_of_storage_swap
from aotlens.capture.builder import Builder
from aotlens.capture.events import EventKind
from aotlens.capture.invalid_views import grad_fn_of
from aotlens.capture.operators import aten
from aotlens.capture.recorded import StorageState
from aotlens.capture.records import Captured
from aotlens.capture.storage import view_base
from aotlens.capture.subclasses import is_wrapper, value_of
from aotlens.torch_api.autograd import shares_version_counter
from aotlens.unsupported import unsupported


def detached_start(captured: Captured, value: Any) -> Any:
    """Return the detached tensor at which the autograd graph of an output starts; None for all others."""
    start, recorded = view_base(value), captured.recorded
    if not value.requires_grad or is_wrapper(value) or grad_fn_of(start) is None:
        return None
    if any(
        start is view_base(captured_input.argument)
        for captured_input in captured.inputs
        if captured_input.is_tensor
    ):
        return None
    storage = recorded.tracked(value).storage
    if recorded.tracked(start).storage is not storage or is_graph_start(captured, start, storage):
        return None
    has_company = any(output is not value for output in captured.outputs_in(storage))
    return start if storage.inputs or has_company else None


def is_graph_start(captured: Captured, start: Any, storage: StorageState) -> bool:
    """Return True if an autograd graph starts at the tensor that the outputs on this storage are views of.

    That is the tensor that the storage was created with.  If no output is a view of it (`torch.zeros` returns
    another object than it records), it is the first output.
    """
    if start is view_base(storage.base_tensor):
        return True
    if storage.inputs or storage.base_tensor.requires_grad:
        return False
    outputs = captured.outputs_in(storage)
    if any(view_base(output) is view_base(storage.base_tensor) for output in outputs):
        return False
    return (
        next((output for output in outputs if output.requires_grad and view_base(output) is output), None)
        is start
    )


class DetachedOutputs:
    """The bases of outputs with their own `grad_fn`, and of other outputs on their storages."""

    def __init__(self, captured: Captured, builder: Builder, bases: Bases) -> None:
        self._captured = captured
        self._builder = builder
        self._bases = bases
        self._base_by_start: dict[int, IntermediateBaseOf] = {}
        """By the identity of the detached tensor."""
        for value in captured.outputs:
            if not isinstance(value, torch.Tensor):
                continue
            start = detached_start(captured, value)
            if start is not None and id(start) not in self._base_by_start:
                self._base_by_start[id(start)] = self._base(start)

    def base_of(self, value: Any) -> IntermediateBaseOf | None:
        """Return the base of an output with its own `grad_fn`; None for all others."""
        return self._base_by_start.get(id(view_base(value)))

    def result(self, index: int, base: IntermediateBaseOf, same: int | None) -> OutputAliasInfo:
        """Describe an output that the wrapper regenerates from its base.

        `same` is the index of an earlier output that is the same tensor object.

        Raises:
            UnsupportedError: a custom function made the output, and a repeated view would skip its backward.
        """
        value, start = self._captured.outputs[index], self._bases.tensor(base)
        if passes_custom_function(grad_fn_of(value), [grad_fn_of(start)]):
            raise unsupported("custom-view-of-detached", self._captured.subject.span)
        recorded = self._captured.recorded
        of_input = recorded.tracked(start).storage.inputs
        info = alias_of(
            self._captured,
            index,
            Start(base, start, relative_chain(recorded, start, value)),
            OutputType.ALIAS_OF_INPUT if of_input else OutputType.ALIAS_OF_INTERMEDIATE,
            "shares memory with others, but was detached from them, and has a `grad_fn` of its own",
        )
        return replace(info, same_object_as=same)

    def _base(self, start: Any) -> IntermediateBaseOf:
        memory = self._detached_storage(start, self._captured.recorded.tracked(start).storage)
        value = self._builder.emit(aten.clone.default, value_of(self._builder, start))
        return self._bases.hide(BaseInfo(value, start, detached_storage=memory))

    def _detached_storage(self, start: Any, storage: StorageState) -> DetachedStorage:
        base, under = self._storage_base(storage)
        chain = relative_chain(self._captured.recorded, under, start)
        otherwise = reinterpreted_as(start, under) if chain is None else None
        if otherwise is not None:
            raise unsupported(
                "detached-output-reinterpreted", self._captured.subject.span, reinterpretation=otherwise
            )
        return DetachedStorage(
            base=base,
            chain=chain,
            tensor=start,
            has_own_version=not shares_version_counter(start, under),
            was_assigned=self._captured.recorded.events.has(EventKind.STORAGE_SWAP, start),
        )

    def _storage_base(self, storage: StorageState) -> tuple[AliasBase, Any]:
        """Return the base of the shared storage as the wrapper knows it, and the base's fake tensor."""
        if storage.inputs:
            inputs = self._captured.inputs
            index = next(iter(self._captured.inputs_on(storage)))
            argument = inputs[index].argument
            if self._captured.recorded.tracked(argument).storage is not storage:
                raise unsupported(
                    "detached-output-on-swapped-storage",
                    span_of_storage_swap(self._captured, argument),
                    input=inputs[index].slot.name,
                )
            return InputBase(index), argument
        tensor, base = storage.base_tensor, self._bases.of(storage)
        if base is None:
            value = value_of(self._builder, tensor)
            base = self._bases.hide(BaseInfo(value, tensor if tensor.requires_grad else None), storage)
        return base, tensor
