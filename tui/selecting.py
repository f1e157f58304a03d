"""The selection of the Saved tab: its totals in the background, and the files that make it permanent.

Invariant: a file is written only after the user has confirmed its text; a checkpoint edit is offered only
after a copy with the edit was traced.
"""

from dataclasses import dataclass
from pathlib import Path

from textual.app import App

from aotlens.model import Target
from aotlens.model.report import Fix, WhatIf
from aotlens.view.functions import same_capture
from aotlens.view.tabs.selection import (
    MARK,
    Offer,
    checkpoint_fix,
    checkpoint_offers,
    file_offers,
    offer_lines,
)
from aotlens.view.tabs.source.files import SourceStore
from tui.editing import files_of
from tui.messages import EditsTried, SelectionWeighed
from tui.screens import ConfirmScreen
from tui.tracing import Tracing

NO_FILES = "the policy has a function already, and a decomposition computes some of the values"
NO_TARGET = "the script no longer has this target"


@dataclass(slots=True)
class Selecting:
    """What the app asks about the selection; answers to older questions are ignored."""

    app: App[int]
    tracing: Tracing
    script: Path
    number: int = 0
    """The number of the last question."""
    pending: tuple[Fix, tuple[Offer, ...]] | None = None
    """The checkpoints that are being tried, with the other files to offer."""

    def weigh(self, change: str) -> None:
        """Ask for the totals of a change; it replaces the question before."""
        self.number += 1
        self.tracing.weigh(self.number, change, self.app.post_message)

    def answer_of(self, event: SelectionWeighed, target: Target) -> tuple[WhatIf | None, str]:
        """Return the answer for the shown target, or None and why there is none."""
        weighed = same_capture(event.targets, target)
        partition = weighed.partition if weighed is not None else None
        if partition is not None and partition.what_if:
            return partition.what_if[0], ""
        return None, event.failure.message if event.failure is not None else NO_TARGET

    def offer(self, target: Target, nodes: frozenset[str], answer: WhatIf, sources: SourceStore) -> None:
        """Offer the files; where whole calls are recomputed, first try their checkpoints on a copy."""
        offers = tuple(file_offers(target, nodes, answer, self.script))
        fix = checkpoint_fix(target, nodes, answer)
        paths, texts = files_of((fix,) if fix is not None else (), sources)
        if fix is None or not texts:
            self._show(offers)
            return
        self.number += 1
        self.pending = fix, offers
        self.app.notify("Tracing a copy with checkpoints", title="Checkpoints", timeout=3)
        edits = (
            (str(offer.path.resolve()), offer.after)
            for offer in checkpoint_offers(fix, paths, texts, target, target)
        )
        self.tracing.try_texts(self.number, tuple(edits), self.app.post_message)

    def tried(self, event: EditsTried, target: Target, sources: SourceStore) -> None:
        """Offer the files, with the checkpoints if the edited copy could be traced."""
        if event.number != self.number or self.pending is None:
            return
        (fix, offers), self.pending = self.pending, None
        edited = same_capture(event.targets, target)
        if event.failure is not None or edited is None:
            why = event.failure.message if event.failure is not None else f"{target.qualname} was not traced"
            self.app.notify(
                why, title="No checkpoint: the edited copy failed", severity="warning", markup=False
            )
        else:
            offers = (*offers, *checkpoint_offers(fix, *files_of((fix,), sources), edited, target))
        self._show(offers)

    def _show(self, offers: tuple[Offer, ...]) -> None:
        if not offers:
            self.app.notify(NO_FILES, title="Nothing to write", severity="warning", markup=False)
            return

        def answered(choice: int | None) -> None:
            if choice is not None and choice >= 0:
                self._write(offers[choice])

        choices = tuple((offer.title, tuple(offer_lines(offer))) for offer in offers)
        self.app.push_screen(ConfirmScreen(choices), answered)

    def _write(self, offer: Offer) -> None:
        """Write a file; one that aotlens did not write stays."""
        if not offer.before and offer.path.exists() and MARK not in offer.path.read_text(encoding="utf-8"):
            self.app.notify(
                f"{offer.path} exists, and aotlens did not write it", severity="error", markup=False
            )
            return
        offer.path.write_text(offer.after, encoding="utf-8")
        self.app.notify(
            offer.use or str(offer.path), title=f"Wrote {offer.path.name}", timeout=10, markup=False
        )
