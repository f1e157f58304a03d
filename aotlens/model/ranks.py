"""The compilations of the ranks of one run, and where they differ. Standard library only."""

from dataclasses import dataclass

from aotlens.model.source import Span

__all__ = [
    "Collective",
    "CollectiveMismatch",
    "GraphDifference",
    "PhaseImbalance",
    "RankCompilation",
    "Ranks",
]


@dataclass(frozen=True, slots=True)
class RankCompilation:
    """Equal graphs of one compilation, and the ranks that compiled them."""

    compile_id: str
    """The id in torch's form: `0/1`."""
    function: str
    span: Span | None
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GraphDifference:
    """The first node in which the graphs of two groups of ranks differ."""

    compile_id: str
    function: str
    graph: str
    """The graph: `captured`, `joint`, `forward`, `backward`, `inference`."""
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    text: str
    """The node of these ranks: `relu f32[8, 32]`; `no graph` where they did not compile it."""
    other_text: str
    """The node of the others."""
    span: Span | None
    """The line of these ranks' node; None where torch has no line."""
    other_span: Span | None


@dataclass(frozen=True, slots=True)
class PhaseImbalance:
    """One phase of compilation over all ranks."""

    phase: str
    slowest: int
    """The slowest rank."""
    slowest_s: float
    median_s: float


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective operation in a compiled graph."""

    op: str
    """`all_reduce`, `all_gather_into_tensor`, …"""
    detail: str
    """Its constant arguments but the group: `sum`."""
    tensor: str
    """The tensor that it sends: `f32[8, 16]`."""
    bytes: int | None
    """The larger of the bytes sent and received on one rank; None where a size has no value."""
    group: str
    """The process group's name."""
    graph: str
    compile_id: str
    ranks: tuple[int, ...]
    """The ranks that have it at this position."""
    span: Span | None
    """The line that computes the sent tensor, since torch records its own file for the collective."""


@dataclass(frozen=True, slots=True)
class CollectiveMismatch:
    """The first position at which two ranks run different collectives: there, the job hangs or is wrong."""

    position: int
    """Counted from 1, over all graphs in the order in which they were compiled."""
    rank: int
    other: int
    text: str
    other_text: str
    span: Span | None
    other_span: Span | None


@dataclass(frozen=True, slots=True)
class Ranks:
    """All ranks of one run."""

    ranks: tuple[int, ...]
    compilations: tuple[RankCompilation, ...] = ()
    """In the order in which the first rank compiled them; several of one id where ranks differ."""
    differences: tuple[GraphDifference, ...] = ()
    phases: tuple[PhaseImbalance, ...] = ()
    """The slowest phase first."""
    collectives: tuple[Collective, ...] = ()
    """Of the first rank, in the order in which they were compiled."""
    mismatches: tuple[CollectiveMismatch, ...] = ()

    @property
    def agree(self) -> bool:
        """Whether all ranks compiled the same graphs with the same collectives."""
        return not self.differences and not self.mismatches
