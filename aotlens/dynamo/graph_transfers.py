"""Which tensors one compiled graph writes to memory only for another one to read them again.

Invariant: only first runs are looked at, and no tensor is kept alive.
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
        """By storage: the tensor that a graph returned, and the compilation of the graph."""
        self.by_graph: dict[str, dict[int, int]] = {}
        """Bytes by storage of what each graph returned and another one has read."""
        self.returned: dict[str, dict[int, int]] = {}
        """Bytes by storage of everything that each graph returned and did not receive."""

    def reads(self, compile_id: str, inputs: Sequence[Any]) -> frozenset[int]:
        """Note what a graph reads; the answer is the storages of its inputs."""
        storages = set()
        for tensor, storage in _tensors(inputs):
            storages.add(storage)
            reference, writer = self._written.get(storage, (None, ""))
            if reference is not None and reference() is not None and writer != compile_id:
                self.by_graph.setdefault(writer, {})[storage] = _bytes(tensor)
        return frozenset(storages)

    def writes(self, compile_id: str, outputs: Any, received: frozenset[int]) -> None:
        """Note what a graph returns, apart from what it received."""
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
    """A number that two tensors on one storage share; a tensor without a storage is its own."""
    try:
        return int(tensor.untyped_storage()._cdata)  # not its memory: fake tensors have none
    except (NotImplementedError, RuntimeError):  # nor have sparse tensors and functorch's a storage
        return id(tensor)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
