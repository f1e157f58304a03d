"""The ranks of a distributed script in words: memory of each rank, collectives, and why ranks differ.

Invariant: the sentences and rows here are those of every front end.
"""

from collections.abc import Iterator, Sequence

from aotlens.model.fit import Distribution, FitCollective, RankFit, UnevenShard, kind_name
from aotlens.model.source import Span
from aotlens.model.spans import location, text_of
from aotlens.view.quantities import counted, each_of, human_bytes
from aotlens.view.ranks import rank_names

__all__ = [
    "collective_lines",
    "collective_words",
    "collectives_summary",
    "distribution_lines",
    "rank_difference_lines",
    "rank_fit_lines",
    "rank_words",
    "ranks_words",
]

MOST_COLLECTIVES = 12
MOST_SHARDS = 3


def ranks_words(distribution: Distribution) -> str:
    """`rank 0 of 8, observed without the other ranks; also observed: rank 7`."""
    others = [row.rank for row in distribution.ranks if row.rank != distribution.shown_rank]
    shown = f"rank {distribution.shown_rank} of {distribution.world_size}"
    also = f"; also observed: {rank_names(others)}" if others else ""
    return f"{shown}, run in one process with torch's fake process group{also}"


def rank_words(row: RankFit) -> str:
    """`rank 0: 708.6 KiB at the peak, 193.9 KiB at the end of the step, …`."""
    parts = [f"rank {row.rank}: {human_bytes(row.step_peak_bytes)} at the peak"]
    if row.held:
        parts.append(f"{human_bytes(sum(kind.bytes for kind in row.held))} at the end of the step")
    if row.gathered_bytes:
        parts.append(f"up to {human_bytes(row.gathered_bytes)} of gathered parameters at once")
    if row.communication_bytes:
        parts.append(f"up to {human_bytes(row.communication_bytes)} of communication buffers")
    return ", ".join(parts)


def collectives_summary(distribution: Distribution) -> str:
    """`13 collectives in a step: 1.2 MiB, 2.3 ms at 300 GB/s without overlap`."""
    rows = distribution.collectives
    if not rows:
        return "The step has no collectives"
    calls = sum(row.calls for row in rows)
    total_bytes = sum(row.calls * row.bytes for row in rows)
    return (
        f"{counted(calls, 'collective')} in a step: {human_bytes(total_bytes)},"
        f" {milliseconds_text(distribution.milliseconds)} at {distribution.bandwidth_gb_per_s:g} GB/s,"
        " without overlap"
    )


def milliseconds_text(milliseconds: float) -> str:
    """`12.3 ms`, `4.5 µs`."""
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.3g} s"
    return f"{milliseconds:.3g} ms" if milliseconds >= 0.1 else f"{milliseconds * 1e3:.2f} µs"


def collective_words(row: FitCollective) -> str:
    """`all_gather_into_tensor in the forward, 8 ranks  train.py:11:12  model(x)`."""
    group = row.group or f"{row.group_size} ranks"
    where = f"{location(row.span)}  {text_of(row.span)}" if row.span is not None else "no line of yours"
    return f"{row.op}, {row.phase}, {group}  {where}".rstrip()


def rank_difference_lines(distribution: Distribution) -> Iterator[str]:
    """Yield which of the observed ranks needs the most memory, and which parameters are the cause."""
    rows = distribution.ranks
    if len(rows) < 2:
        return
    most, least = max(rows, key=_peak), min(rows, key=_peak)
    if most.step_peak_bytes == least.step_peak_bytes:
        yield "the observed ranks need the same"
    else:
        more = human_bytes(most.step_peak_bytes - least.step_peak_bytes)
        yield f"rank {most.rank} needs the most: {more} more at its peak than rank {least.rank}"
        yield from (f"  {line}" for line in _kind_differences(most, least))
    yield from _shard_lines(rows)


def _peak(row: RankFit) -> int:
    return row.step_peak_bytes


def _kind_differences(most: RankFit, least: RankFit) -> Iterator[str]:
    """Yield the kinds of which one rank has more bytes at its peak."""
    other = {(row.kind, row.state): row.bytes for row in least.by_kind}
    for row in most.by_kind:
        size_bytes = other.get((row.kind, row.state), 0)
        if row.bytes != size_bytes:
            yield f"{kind_name(row)}: {human_bytes(row.bytes)} against {human_bytes(size_bytes)}"


def _shard_lines(rows: Sequence[RankFit]) -> Iterator[str]:
    """Yield the parameters of which the observed ranks hold shards of different sizes."""
    shards = [(row.rank, shard) for row in rows for shard in row.uneven_shards]
    by_name: dict[str, list[tuple[int, UnevenShard]]] = {}
    for rank, shard in shards:
        by_name.setdefault(shard.name, []).append((rank, shard))
    differing = [pieces for pieces in by_name.values() if len({shard.local_shape for _, shard in pieces}) > 1]
    for pieces in differing[:MOST_SHARDS]:
        whole = pieces[0][1]
        words = ", ".join(f"{_shape(shard.local_shape)} on rank {rank}" for rank, shard in pieces)
        yield f"  `{whole.name}`, {_shape(whole.shape)} in all, is not split evenly: {words}"
    if rest := differing[MOST_SHARDS:]:
        yield f"  {counted(len(rest), 'more parameter')} not split evenly"


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def rank_fit_lines(distribution: Distribution) -> Iterator[str]:
    """Yield each observed rank, and how they differ."""
    yield from (rank_words(row) for row in distribution.ranks)
    yield from rank_difference_lines(distribution)


def distribution_lines(distribution: Distribution, *, is_full: bool = False) -> Iterator[str]:
    """Yield the ranks and the collectives as plain lines."""
    yield "Ranks"
    yield from (f"  {line}" for line in rank_fit_lines(distribution))
    yield ""
    yield collectives_summary(distribution)
    most = None if is_full else MOST_COLLECTIVES
    yield from (f"  {line}" for line, _ in collective_lines(distribution.collectives, most))


def collective_lines(
    collectives: Sequence[FitCollective], most: int | None = MOST_COLLECTIVES
) -> Iterator[tuple[str, Span | None]]:
    """Yield the slowest collectives as aligned lines with their spans, then a line for the rest."""
    shown = collectives if most is None else collectives[:most]
    rows = [
        (
            each_of(row.calls, human_bytes(row.bytes)),
            milliseconds_text(row.milliseconds),
            collective_words(row),
            row.span,
        )
        for row in shown
    ]
    if rest := collectives[len(shown) :]:
        more = milliseconds_text(sum(row.milliseconds for row in rest))
        rows.append(("", more, f"{counted(len(rest), 'more row')} (--full)", None))
    width = max((len(size) for size, *_ in rows), default=0)
    time_width = max((len(time) for _, time, *_ in rows), default=0)
    for size, time, words, span in rows:
        yield f"{size:>{width}}  {time:>{time_width}}  {words}", span
