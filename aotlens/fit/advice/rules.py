"""The kinds of edits, in the order in which edits of several kinds are made."""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from aotlens.fit.advice.edits.accumulation import micro_batches
from aotlens.fit.advice.edits.block_compilation import block_compilations
from aotlens.fit.advice.edits.checkpoints import checkpoints
from aotlens.fit.advice.edits.chunked_loss import chunked_losses
from aotlens.fit.advice.edits.contexts import autocast, offload
from aotlens.fit.advice.edits.evaluation import evaluations_in_parts, evaluations_without_gradients
from aotlens.fit.advice.edits.gradients import deletions, end_deletions, gradients_to_none, moved_zero_grad
from aotlens.fit.advice.edits.graph_budgets import graph_budgets
from aotlens.fit.advice.edits.optimizers import eight_bit_states, optimizer_kernels
from aotlens.fit.advice.edits.rows_in_parts import rows_in_parts
from aotlens.fit.advice.edits.step_in_backward import steps_in_backward
from aotlens.fit.advice.jobs import NamesOutcome
from aotlens.fit.advice.proposals import Proposal, Rule, Site
from aotlens.fit.advice.step import backward_ordinal, find_step
from aotlens.fixes.source import Source
from aotlens.model.edits import edited
from aotlens.model.fit import Fit
from aotlens.model.source import Edit

__all__ = ["RULES", "Script"]

RULES: tuple[Rule, ...] = (
    gradients_to_none,
    moved_zero_grad,
    optimizer_kernels,
    eight_bit_states,
    evaluations_without_gradients,
    evaluations_in_parts,
    steps_in_backward,
    graph_budgets,
    block_compilations,
    chunked_losses,
    checkpoints,
    rows_in_parts,
    deletions,
    end_deletions,
    offload,
    micro_batches,
    autocast,
)
"""Edits of single expressions first, because the last ones rewrite the statements of the step; autocast at
the end, because it rewrites the forward and is not exact."""


class Script:
    """A script, for which edits are proposed and made."""

    def __init__(self, texts: Mapping[str, str], outcome: NamesOutcome, fit: Fit) -> None:
        self.texts, self._outcome, self._fit = texts, outcome, fit
        source = _sources(texts).get(outcome.file)
        self._ordinal = None if source is None else backward_ordinal(source, outcome.line)

    def proposals(self) -> tuple[Proposal, ...]:
        """Return all proposals for the script as it is."""
        return tuple(self._of_rule(self.texts, *RULES))

    def with_edits(self, chosen: tuple[Proposal, ...]) -> dict[str, str] | None:
        """Return the changed files with these proposals; None if one is not possible after the others.

        Each is proposed again for the text with those before, because their edits may be in the same lines.
        """
        texts, made = dict(self.texts), 0
        for rule in RULES:
            for wanted in chosen:
                same = [each for each in self._of_rule(texts, rule) if each.identity == wanted.identity]
                if same:
                    texts = {file: edited(text, _edits(same[0], file)) for file, text in texts.items()}
                    made += 1
        if made < len(chosen) or len(_sources(texts)) < len(_sources(self.texts)):
            return None
        return {file: text for file, text in texts.items() if text != self.texts[file]}

    def _of_rule(self, texts: Mapping[str, str], *rules: Rule) -> Iterator[Proposal]:
        sources = _sources(texts)
        source = sources.get(self._outcome.file)
        step = None
        if source is not None and self._ordinal is not None:
            step = find_step(source, self._ordinal, self._outcome)
        names = {fact.name: fact for fact in self._outcome.names}
        has_eight_bit = self._outcome.has_eight_bit
        site = Site(sources, step, names, self._fit, texts != self.texts, has_eight_bit)
        for rule in rules:
            yield from dict.fromkeys(each for each in rule(site) if each is not None)


def _edits(proposal: Proposal, file: str) -> tuple[Edit, ...]:
    return tuple(edit for edit in proposal.edits if edit.span.file == file)


def _sources(texts: Mapping[str, str]) -> dict[str, Source]:
    """Return the files that parse."""
    sources = {file: _source(file, text) for file, text in texts.items()}
    return {file: source for file, source in sources.items() if source is not None}


@lru_cache(maxsize=256)
def _source(file: str, text: str) -> Source | None:
    """Parse a text once: the rules read all files again after each edit, which changes one or two of them."""
    try:
        return Source(file, text)
    except SyntaxError:
        return None
