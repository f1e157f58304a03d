"""The tensors that one compiled graph returns and another reads.

Invariant: only first runs are recorded, and no tensor is kept alive.
"""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.dynamo.graph_edges import EdgeOperator, GraphEdges, may_fuse

__all__ = ["GraphTransfers"]


@dataclass(frozen=True, slots=True)
class WrittenTensor:
    """An output of a graph."""

    tensor: weakref.ref[Any]
    compile_id: str
    writer: EdgeOperator | None


class GraphTransfers:
    """Mutable: filled while the script runs."""

    def __init__(self) -> None:
        self.edges: dict[str, GraphEdges] = {}
        """By compilation."""
        self._written: dict[int, WrittenTensor] = {}
        """By storage."""
        self.by_graph: dict[str, dict[int, int]] = {}
        """Bytes by storage of the outputs of each graph that another has read."""
        self.returned: dict[str, dict[int, int]] = {}
        """Bytes by storage of the outputs of each graph that were not its inputs."""
        self.unfused: dict[str, dict[tuple[EdgeOperator, EdgeOperator], None]] = {}
        """The pairs of operators, in each graph and in one that reads it, that could share a kernel."""

    def reads(self, compile_id: str, inputs: Sequence[Any]) -> frozenset[int]:
        """Record what a graph reads; return the storages of its inputs."""
        storages = set()
        readers = self.edges.get(compile_id, GraphEdges()).readers
        for index, tensor, storage in _tensors(inputs):
            storages.add(storage)
            written = self._written.get(storage)
            if written is None or written.tensor() is None or written.compile_id == compile_id:
                continue
            self.by_graph.setdefault(written.compile_id, {})[storage] = _bytes(tensor)
            if written.writer is not None and may_fuse(written.writer.name) and index < len(readers):
                pairs = self.unfused.setdefault(written.compile_id, {})
                for reader in readers[index]:
                    if may_fuse(reader.name):
                        pairs[written.writer, reader] = None
        return frozenset(storages)

    def writes(self, compile_id: str, outputs: Any, received: frozenset[int]) -> None:
        """Record what a graph returns, except what it received."""
        returned = self.returned.setdefault(compile_id, {})
        writers = self.edges.get(compile_id, GraphEdges()).writers
        for index, tensor, storage in _tensors(outputs if isinstance(outputs, list | tuple) else (outputs,)):
            if storage not in received:
                writer = writers[index] if index < len(writers) else None
                self._written[storage] = WrittenTensor(weakref.ref(tensor), compile_id, writer)
                returned[storage] = _bytes(tensor)


def _tensors(values: Sequence[Any]) -> Iterator[tuple[int, torch.Tensor, int]]:
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            yield index, value, _storage(value)


def _storage(tensor: torch.Tensor) -> int:
    """Return an identity that tensors on one storage share; a tensor without storage has its own."""
    try:
        return int(tensor.untyped_storage()._cdata)  # not data_ptr: fake tensors have no memory
    except (NotImplementedError, RuntimeError):  # sparse and functorch tensors have no storage
        return id(tensor)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
