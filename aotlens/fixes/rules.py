"""The rules that propose edits, in the order in which their candidates are tried."""

from collections.abc import Mapping

from aotlens.fixes.arguments import lists, neutral_tensors, sizes
from aotlens.fixes.branches import branches
from aotlens.fixes.candidates import Alternatives, BreakRule, ValueRule, alternatives, files_of
from aotlens.fixes.numbers import numbers
from aotlens.fixes.print_calls import messages
from aotlens.fixes.scalars import scalars, selections
from aotlens.fixes.source import Source
from aotlens.fixes.untraced_calls import calls
from aotlens.model.dynamo import Dynamo

__all__ = ["BREAK_RULES", "VALUE_RULES", "proposed"]

BREAK_RULES: tuple[BreakRule, ...] = (messages, branches, calls, scalars, selections)
VALUE_RULES: tuple[ValueRule, ...] = (numbers, sizes, neutral_tensors, lists)


def proposed(dynamo: Dynamo, texts: Mapping[str, str]) -> tuple[Alternatives, ...]:
    """Return the candidates for everything that the report names in these files."""
    sources: dict[str, Source] = {}
    for file in dict.fromkeys((*files_of(dynamo), *texts)):
        if file in texts:
            try:
                sources[file] = Source(file, texts[file])
            except SyntaxError:
                continue  # not Python: a notebook's cell, a template
    return tuple(alternatives(dynamo, sources, BREAK_RULES, VALUE_RULES))
