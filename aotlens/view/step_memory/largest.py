"""The largest batch size or sequence length in words.

Invariant: the formula and the rows of kinds are those of the peak at the largest size.
"""

from collections.abc import Iterator

from aotlens.model.fit import BatchFit, BatchPeak, KindGrowth, kind_name
from aotlens.view.quantities import human_bytes

__all__ = ["formula", "largest_lines"]

ITEMS = (("batch", "sample"), ("seq", "position"), ("block", "position"), ("context", "position"))
"""By a part of the name of what varies, what one more of it adds."""


def formula(batch: BatchFit, row: BatchFit | KindGrowth | None = None) -> str:
    """`1.2 GiB + 85.0 MiB per sample`, of all kinds or of one."""
    row = row or batch
    item = _item(batch.varied)
    terms = [
        human_bytes(row.fixed_bytes) if row.fixed_bytes else "",
        f"{human_bytes(row.bytes_per_item)} per {item}" if row.bytes_per_item else "",
        f"{human_bytes(row.bytes_per_square)} per {item} squared" if row.bytes_per_square else "",
    ]
    return " + ".join(filter(None, terms)).replace("+ -", "- ") or human_bytes(0)


def _item(name: str) -> str:
    lower = name.lower()
    return next((item for part, item in ITEMS if part in lower), name.partition("@")[0].lstrip("-"))


def largest_lines(batch: BatchFit) -> Iterator[str]:
    """Yield the answer, the formula, the kinds, and the runs that verify it."""
    if batch.largest:
        yield f"Largest {batch.varied} that fits {batch.gpu}: {batch.largest}"
    else:
        yield f"No {batch.varied} fits {batch.gpu}: not even 1"
    yield f"  {formula(batch)} at the peak, of which"
    words = [formula(batch, row) for row in batch.kinds]
    width = max(map(len, words), default=0)
    for row, text in zip(batch.kinds, words, strict=True):
        yield f"    {text:<{width}}  {kind_name(row)}"
    largest = batch.largest or 0
    checked = [peak for peak in batch.peaks if peak.batch in (largest, largest + 1)]
    others = [str(peak.batch) for peak in batch.peaks if peak not in checked]
    yield f"  computed from runs with {batch.varied} = {', '.join(others)}; {_verdict(batch)}:"
    yield from (f"    {_run_words(batch, peak)}" for peak in checked)


def _verdict(batch: BatchFit) -> str:
    return "runs at this size and the next confirm it" if batch.is_verified else "runs contradict it"


def _run_words(batch: BatchFit, peak: BatchPeak) -> str:
    fits = "fits" if peak.reserved_bytes <= (batch.capacity_bytes or 0) else "does not fit"
    used = f"{human_bytes(peak.peak_bytes)} at the peak, {human_bytes(peak.reserved_bytes)} reserved"
    return f"{peak.batch}: {used} of {human_bytes(batch.capacity_bytes or 0)}, {fits}"
