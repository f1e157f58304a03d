"""Finds nodes and names of all tabs: part of the command palette, and by itself behind `/` `/`."""

from functools import partial
from typing import ClassVar

from textual.command import CommandPalette, Hit, Hits, Provider

from aotlens.view.tabs.tables.search import MOST, Names, names_of
from tui.panes.base import Subject

PLACEHOLDER = "find nodes, values, arguments, kernels in all tabs"


class FindProvider(Provider):
    """The names of the shown target; they are collected once for each report."""

    known: ClassVar[tuple[Subject, Names] | None] = None

    async def search(self, query: str) -> Hits:
        subject, jump = getattr(self.screen, "subject", None), getattr(self.screen, "jump", None)
        if subject is None or jump is None or not query.strip():
            return
        if self.known is None or self.known[0] is not subject:
            FindProvider.known = (subject, names_of(subject.target))
        assert self.known is not None
        matcher = self.matcher(query)
        for rank, named in enumerate(self.known[1].find(query)):
            # Commands whose words match well still come before names that only have the letters.
            score = 0.9 - 0.5 * rank / MOST
            yield Hit(score, matcher.highlight(named.name), partial(jump, named.jump), help=named.what)


def finder() -> CommandPalette:
    """Return the palette with only names."""
    return CommandPalette(providers=[FindProvider], placeholder=PLACEHOLDER)
