"""Checkpoint edits that recompute the values that the user has selected.

Invariant: an edit is made only for a call of which every saved value is to be recomputed, so nothing that the
user wants to save is recomputed too.
"""

from collections.abc import Collection, Iterator

from aotlens.diagnostics.checkpoint_call import Advice, checkpoint_candidates
from aotlens.diagnostics.checkpoint_edit import checkpointed
from aotlens.model.report import Edit, Fix, Target

__all__ = ["checkpoint_edits"]


def checkpoint_edits(target: Target, recomputed: Collection[str]) -> Fix | None:
    """Return one fix with a checkpoint around each call whose saved values are all in `recomputed`.

    Of nested calls the outermost is wrapped.  None if no call fits.
    """
    chosen: list[Advice] = []
    fits = [advice for advice in checkpoint_candidates(target) if advice.no_longer_saved <= set(recomputed)]
    for advice in sorted(fits, key=lambda fit: (-len(fit.no_longer_saved), fit.span.extent)):
        if advice.no_longer_saved and not any(_overlaps(advice, other) for other in chosen):
            chosen.append(advice)
    fixes = [fix for advice in sorted(chosen, key=_start) if (fix := checkpointed(advice)) is not None]
    if not fixes:
        return None
    title = fixes[0].title if len(fixes) == 1 else f"Recompute {len(fixes)} calls in the backward"
    return Fix(title, tuple(dict.fromkeys(_edits(fixes))))


def _edits(fixes: list[Fix]) -> Iterator[Edit]:
    for fix in fixes:
        yield from fix.edits


def _overlaps(advice: Advice, other: Advice) -> bool:
    """Return True if two calls recompute a common value, or one is inside the other."""
    is_nested = advice.span.holds(other.span) or other.span.holds(advice.span)
    return is_nested or bool(advice.no_longer_saved & other.no_longer_saved)


def _start(advice: Advice) -> tuple[str, int, int]:
    return advice.span.file, advice.span.line, advice.span.col
