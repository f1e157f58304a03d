"""The selection of the Saved tab: its totals while it changes, and the files that make it permanent."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aotlens.diagnostics.checkpoint_selection import checkpoint_edits
from aotlens.model.edits import edited, unified_diff
from aotlens.model.report import Fix, Target, WhatIf
from aotlens.view.partition.selection import (
    checkpoint_call,
    policy_file_text,
    policy_option,
    selective_checkpoint_text,
    selective_saves,
)
from aotlens.view.quantities import change_text, counted, human_bytes, human_flops
from aotlens.view.tabs.tables.rows import Line, Part

__all__ = [
    "MARK",
    "Offer",
    "checkpoint_fix",
    "checkpoint_offers",
    "file_offers",
    "offer_lines",
    "recomputed_by",
    "selection_line",
]

MARK = "as selected in aotlens"
"""What every written file says, so that it may be written again."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One file that makes the selection permanent."""

    title: str
    path: Path
    before: str
    """The text of the file now; empty for a new one."""
    after: str
    use: str = ""
    """How to use the file, shown once it is written."""


def selection_line(count: int, answer: WhatIf | None, problem: str = "") -> Line:
    """Return how many values are selected, and the totals with them; None while they are computed."""
    parts = [Part(f"✓ {counted(count, 'value')} selected", "title")]
    if problem:
        return Line((*parts, Part(f"  {problem}", "warning")), wrap=True)
    if answer is None:
        return Line((*parts, Part("  computing the totals …", "dim")))
    before, after = answer.before, answer.after
    for title, old, new, write in (
        ("saved", before.saved_bytes, after.saved_bytes, human_bytes),
        ("recomputed", before.recompute_flops, after.recompute_flops, human_flops),
        ("peak", before.peak_bytes, after.peak_bytes, human_bytes),
    ):
        parts.append(Part(f" · {title} " if len(parts) > 1 else f"  {title} ", "dim"))
        parts.append(Part(write(new)))
        parts.append(Part(f" {change_text(new - old, write)}", "accent" if new != old else "dim"))
    return Line(tuple(parts), wrap=True)


def file_offers(target: Target, nodes: Collection[str], answer: WhatIf, script: Path) -> Iterator[Offer]:
    """Yield the policy file, then the selective checkpoint, where each is possible."""
    partition = target.partition
    assert partition is not None  # nothing is selected in inference
    path = script.with_name(f"{script.stem}_policy.py")
    option = policy_option(partition, nodes, path.name)
    if option is not None:
        text = policy_file_text(partition, nodes, script.name, option)
        use = f"aotlens inspect {script.name} --policy {option}"
        yield Offer(f"Policy file {path.name}", path, "", text, use)
    path = script.with_name(f"{script.stem}_checkpoint.py")
    selective = selective_checkpoint_text(target, selective_saves(partition, answer))
    if selective is not None:
        use = checkpoint_call(target, "…")
        yield Offer(f"Selective checkpoint {path.name}", path, "", selective, use)


def recomputed_by(target: Target, nodes: Collection[str], answer: WhatIf) -> frozenset[str]:
    """Return the saved values that are no longer saved with the selection."""
    saved = target.partition.saved if target.partition is not None else ()
    return frozenset(answer.no_longer_saved) | {value.node for value in saved if value.node in nodes}


def checkpoint_fix(target: Target, nodes: Collection[str], answer: WhatIf) -> Fix | None:
    """Return the checkpoints that recompute the selection's calls; None where no whole call is recomputed."""
    return checkpoint_edits(target, recomputed_by(target, nodes, answer))


def checkpoint_offers(
    fix: Fix, paths: Mapping[str, Path], texts: Mapping[str, str], tried: Target, target: Target
) -> Iterator[Offer]:
    """Yield the edited files of a fix; `tried` is the same target in a trace of the edited copies."""
    before, after = target.partition, tried.partition
    saved = "" if before is None or after is None else _saved_text(before.saved_bytes, after.saved_bytes)
    for file, text in texts.items():
        edits = tuple(edit for edit in fix.edits if edit.span.file == file)
        yield Offer(f"{fix.title}{saved}", paths[file], text, edited(text, edits))


def _saved_text(before: int, after: int) -> str:
    return f": saves {human_bytes(after)}, {change_text(after - before, human_bytes)}"


def offer_lines(offer: Offer) -> Iterator[Line]:
    """Yield the file's name, then its difference, or the whole text of a new file."""
    yield Line((Part(str(offer.path), "place"),))
    if not offer.before:
        yield from (Line((Part(f"+{row}", "added"),)) for row in offer.after.splitlines())
        return
    for row in unified_diff(offer.path.name, offer.before, offer.after).splitlines()[2:]:
        role = {"+": "added", "-": "removed", "@": "dim"}.get(row[:1], "")
        yield Line((Part(row, role),))
