"""Record the collectives of one rank, and predict how long they take.

Invariant: a collective reads and writes nothing; its record and the memory of its tensors are all that
remains of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotlens.fit.ring import ring_seconds
from aotlens.ir.origin import Frames
from aotlens.model.fit import FitCollective, FitPhase
from aotlens.model.source import Span
from aotlens.torch_api.fake.process_groups import finished, group_ranks
from aotlens.torch_api.operators import tensor_leaves
from aotlens.view.ranks import rank_names

__all__ = ["CollectiveCall", "Communication", "OperatorCall"]

NAMESPACES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"})
WAIT = "_c10d_functional::wait_tensor"
_NO_COLLECTIVES = frozenset({"wait_tensor", "monitored_barrier_"})
_NAMES = {
    "_allgather_base_": "all_gather_into_tensor",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "allreduce_": "all_reduce",
    "allgather_": "all_gather",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all_single",
    "shard_dim_alltoall": "all_to_all_single",
}
"""The name in `torch.distributed` of operators that have another."""


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One call of a collective."""

    op: str
    """Its name in `torch.distributed`, such as `all_reduce`."""
    bytes: int
    """The larger of the bytes that it reads and those that it writes, on this rank."""
    ranks: tuple[int, ...]
    moment: int
    phase: FitPhase
    frames: Frames


OperatorCall = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""An operator with its arguments."""
Where = tuple[int, FitPhase, Frames]
"""The moment, the phase and the line of a call."""


@dataclass(slots=True)
class Communication:
    """The process group of a rank that has no other processes."""

    world_size: int
    calls: list[CollectiveCall] = field(default_factory=list)

    def handles(self, func: Any) -> bool:
        return func.namespace in NAMESPACES

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the operator returns once it has ended; its outputs have no values."""
        if func._schema.name == WAIT:
            return args[0]  # torch's function for fake tensors returns a copy
        if func.namespace != "c10d":
            return func(*args, **kwargs)
        returns = func._schema.returns
        if not returns:
            return None
        work = finished(tensor_leaves(args[0]))
        return (args[0], work) if len(returns) == 2 else work

    def record(self, call: OperatorCall, result: Any, where: Where) -> list[torch.Tensor]:
        """Record the call, and return the buffers that it reads or writes; empty for a wait."""
        func, args, kwargs = call
        name = func._schema.name.partition("::")[2]
        if name in _NO_COLLECTIVES:
            return []
        op = _NAMES.get(name, name.rstrip("_"))
        groups = [sum(_bytes(tensor_leaves(value))) for value in (*args, *kwargs.values())]
        outputs = [] if func.namespace == "c10d" else tensor_leaves(result)
        size_bytes = max([sum(_bytes(outputs)), *groups])
        if op != "barrier":
            ranks = group_ranks(args, kwargs) or tuple(range(self.world_size))
            self.calls.append(CollectiveCall(op, size_bytes, ranks, *where))
        return [*tensor_leaves((args, kwargs)), *outputs]

    def rows(self, first: int, last: int, bandwidth_gb_per_s: float) -> tuple[FitCollective, ...]:
        """Return the calls between two moments, one row for each line, the slowest first."""
        rows: dict[object, FitCollective] = {}
        for call in self.calls:
            if first <= call.moment < last:
                row = self._row(call, bandwidth_gb_per_s)
                key = (row.op, row.bytes, row.group, row.phase, _line(row.span))
                earlier = rows.get(key)
                rows[key] = row if earlier is None else _sum(earlier, row)
        return tuple(sorted(rows.values(), key=lambda row: -row.milliseconds))

    def _row(self, call: CollectiveCall, bandwidth_gb_per_s: float) -> FitCollective:
        seconds = ring_seconds(call.op, call.bytes, len(call.ranks), bandwidth_gb_per_s)
        return FitCollective(
            op=call.op,
            bytes=call.bytes,
            calls=1,
            group_size=len(call.ranks),
            phase=call.phase,
            span=call.frames.innermost,
            group="" if len(call.ranks) == self.world_size else rank_names(call.ranks),
            milliseconds=seconds * 1e3,
        )


def _sum(first: FitCollective, other: FitCollective) -> FitCollective:
    return replace(
        first, calls=first.calls + other.calls, milliseconds=first.milliseconds + other.milliseconds
    )


def _line(span: Span | None) -> tuple[str, int] | None:
    return None if span is None else (span.file, span.line)


def _bytes(tensors: Iterable[torch.Tensor]) -> list[int]:
    return [tensor.numel() * tensor.element_size() for tensor in tensors]
