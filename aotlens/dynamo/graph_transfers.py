"""The tensors that one compiled graph returns and another reads.

Invariant: only first runs are recorded, and no tensor is kept alive.
"""

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

__all__ = ["GraphTransfers"]


class GraphTransfers:
    """Mutable: filled while the script runs."""

    def __init__(self) -> None:
        self._written: dict[int, tuple[weakref.ref[Any], str]] = {}
        """By storage, the tensor that a graph returned, and the graph's compilation."""
        self.by_graph: dict[str, dict[int, int]] = {}
        """Bytes by storage of the outputs of each graph that another has read."""
        self.returned: dict[str, dict[int, int]] = {}
        """Bytes by storage of the outputs of each graph that were not its inputs."""

    def reads(self, compile_id: str, inputs: Sequence[Any]) -> frozenset[int]:
        """Record what a graph reads; return the storages of its inputs."""
        storages = set()
        for tensor, storage in _tensors(inputs):
            storages.add(storage)
            reference, writer = self._written.get(storage, (None, ""))
            if reference is not None and reference() is not None and writer != compile_id:
                self.by_graph.setdefault(writer, {})[storage] = _bytes(tensor)
        return frozenset(storages)

    def writes(self, compile_id: str, outputs: Any, received: frozenset[int]) -> None:
        """Record what a graph returns, except what it received."""
        returned = self.returned.setdefault(compile_id, {})
        for tensor, storage in _tensors(outputs if isinstance(outputs, list | tuple) else (outputs,)):
            if storage not in received:
                self._written[storage] = weakref.ref(tensor), compile_id
                returned[storage] = _bytes(tensor)


def _tensors(values: Sequence[Any]) -> Iterator[tuple[torch.Tensor, int]]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value, _storage(value)


def _storage(tensor: torch.Tensor) -> int:
    """Return an identity that tensors on one storage share; a tensor without storage has its own."""
    try:
        return int(tensor.untyped_storage()._cdata)  # not data_ptr: fake tensors have no memory
    except (NotImplementedError, RuntimeError):  # sparse and functorch tensors have no storage
        return id(tensor)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
