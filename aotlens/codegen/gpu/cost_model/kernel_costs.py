"""A call's traffic, work and lower time bound on the target, and each expression's share of them.

Invariant: the shares of the expressions sum to the call's figures.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from aotlens.codegen.gpu.cost_model.roofline import Floor, Work, floor
from aotlens.codegen.gpu.records import Access, KernelCall
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.model.report import Kernel, KernelAccess, KernelShare, Span

SpanOf = Callable[[str], Span | None]
"""Returns the innermost expression of a node, by its name."""


def with_costs(row: Kernel, call: KernelCall, target: GpuTarget, span_of: SpanOf) -> Kernel:
    """Return the row with bytes, operations, time floor and shares; unchanged if the call has no accesses."""
    if not call.accesses:
        return row
    read = sum(access.bytes for access in call.accesses if not access.written)
    written = sum(access.bytes for access in call.accesses if access.written)
    work = tuple(
        Work(part.flops, part.dtype, "matrix" if part.is_product else "vector") for part in call.work
    )
    least = floor(target, sum(map(_through_memory, call.accesses)), work)
    flops = sum(part.flops for part in call.work) if call.work else None
    shares = tuple(_shares(row.spans, call, least, span_of))
    return replace(
        row,
        spans=_costliest_first(row.spans, shares),
        bytes_read=read,
        bytes_written=written,
        bytes_moved=read + written,
        flops=flops,
        intensity=flops / (read + written) if flops is not None and read + written else None,
        floor_us=least.time_us,
        bound=least.bound,
        accesses=tuple(_access(access, span_of) for access in call.accesses),
        shares=shares,
    )


def _costliest_first(spans: tuple[Span, ...], shares: tuple[KernelShare, ...]) -> tuple[Span, ...]:
    """Sort by line, and within a line, by work and then by traffic; expressions that only create views come
    last."""
    known = {share.span: (share.flops, share.bytes_read + share.bytes_written) for share in shares}
    lines: dict[tuple[str, int], list[Span]] = {}
    for span in spans:
        lines.setdefault((span.file, span.line), []).append(span)

    def cost(group: list[Span]) -> tuple[int, int]:
        flops, traffic = zip(*(known.get(span, (0, 0)) for span in group), strict=True)
        return sum(flops), sum(traffic)

    by_line = sorted(lines.values(), key=cost, reverse=True)
    return tuple(
        span
        for line in by_line
        for span in sorted(line, key=lambda candidate: cost([candidate]), reverse=True)
    )


def _through_memory(access: Access) -> int:
    """Return the least bytes that memory transfers: whole sectors where they are known."""
    return access.bytes if access.is_gather else access.sector_bytes


def _access(access: Access, span_of: SpanOf) -> KernelAccess:
    span = next(filter(None, map(span_of, access.by)), None)
    sizes = (access.bytes, access.sector_bytes)
    return KernelAccess(access.node, access.written, *sizes, span, access.is_gather)


@dataclass(slots=True)
class _Share:
    """Mutable while a call's parts are distributed."""

    read: int = 0
    written: int = 0
    flops: int = 0


def _shares(
    spans: tuple[Span, ...], call: KernelCall, least: Floor, span_of: SpanOf
) -> Iterator[KernelShare]:
    """Yield each expression's share of a call; nothing where no user expression is known for it."""
    if not spans:
        return
    shares = {span: _Share() for span in spans}
    for access in call.accesses:
        owners = tuple(dict.fromkeys(filter(None, map(span_of, access.by)))) or spans
        for owner, part in zip(owners, _parts(access.bytes, len(owners)), strict=True):
            share = shares.setdefault(owner, _Share())
            share.read += 0 if access.written else part
            share.written += part if access.written else 0
    for node_work in call.work:
        node_span = span_of(node_work.node)
        owners = (node_span,) if node_span is not None else spans
        for owner, part in zip(owners, _parts(node_work.flops, len(owners)), strict=True):
            shares.setdefault(owner, _Share()).flops += part
    is_memory = least.bound == "memory"
    weights = [share.read + share.written if is_memory else share.flops for share in shares.values()]
    whole = sum(weights) or 1
    for (span, share), weight in zip(shares.items(), weights, strict=True):
        yield KernelShare(span, share.read, share.written, share.flops, least.time_us * weight / whole)


def _parts(whole: int, count: int) -> list[int]:
    """Divide the whole into nearly equal parts."""
    part, rest = divmod(whole, count)
    return [part + (index < rest) for index in range(count)]
