"""What a log of torch contains besides the targets of its report. Standard library only."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.source import Span

__all__ = ["ListedTarget", "Log", "RecordKind"]


@dataclass(frozen=True, slots=True)
class ListedTarget:
    """A compilation of a large log whose graphs were not read for the report."""

    qualname: str
    compile_id: str
    """The id in torch's form: `0/1`. `aotlens inspect LOG::0/1` reads it, with all others of that id."""
    mode: Literal["training", "inference"]
    span: Span | None
    bytes: int
    """The size of its graphs and its generated code in the log."""
    ranks: tuple[int, ...] = ()
    """The ranks that compiled it, in a log of several."""
    variant: int = 0
    """Its number among the compilations with this id: those of other ranks, or after a Dynamo reset."""


@dataclass(frozen=True, slots=True)
class RecordKind:
    """The records of one kind that the report does not use."""

    name: str
    """The kind, or the name of an artifact: `fx_graph_runnable`."""
    count: int
    is_known: bool
    """True if torch writes it; False for a kind that this version does not know, of a library or a newer
    torch."""


@dataclass(frozen=True, slots=True)
class Log:
    """The log, or the folder of logs, that a report was made from."""

    path: str
    listed: tuple[ListedTarget, ...] = ()
    """Compilations that are not among the targets of the report, in the order of the log; the first 1,000."""
    listed_count: int = 0
    """All of them."""
    skipped_compilations: int = 0
    """Compilations beyond the limit, whose graph breaks and recompilations are not in the report."""
    unused: tuple[RecordKind, ...] = ()
    """Kinds of records that are not in the report, the unknown ones first."""
    processes_of_a_rank: int = 1
    """The most processes that have the same rank, or none: above 1 after several runs into one folder."""
