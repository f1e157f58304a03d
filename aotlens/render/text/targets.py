"""The targets of a report with many: the largest are shown, the others are listed.

Invariant: every target is shown or listed, and the diagnostics of listed ones come first.
"""

from collections.abc import Iterator, Sequence

from rich.text import Text

from aotlens.model.report import Target
from aotlens.model.spans import shown_path
from aotlens.render.text.diagnostics import diagnostic_list
from aotlens.render.text.layout import Page, Row, heading, paragraph, table
from aotlens.view.quantities import call_count, counted, graph_counts, human_bytes, signature

__all__ = ["main_targets", "other_target_lines"]

_MAIN = 2
_FEW = 12


def main_targets(targets: Sequence[Target]) -> tuple[int, ...]:
    """Return the positions of the targets that save most, then have most operators; the first one of each
    function."""
    ranked = sorted(range(len(targets)), key=lambda index: _size(targets[index]), reverse=True)
    first_of: dict[object, int] = {}
    for index in ranked:
        first_of.setdefault((targets[index].qualname, targets[index].file), index)
    chosen = list(first_of.values())[:_MAIN]
    chosen += [index for index in ranked if index not in chosen][: _MAIN - len(chosen)]
    return tuple(sorted(chosen))


def _size(target: Target) -> tuple[int, int]:
    saved = target.partition.saved_bytes if target.partition else 0
    return saved, sum(call_count(target.stage(name)) for name in ("forward", "backward", "inference"))


def other_target_lines(targets: Sequence[Target], page: Page) -> Iterator[Text]:
    """Yield, for a short page, the diagnostics of the targets without a section, then one row for each."""
    if not targets:
        return
    few = page.few(_FEW)
    source = "LOG" if targets[0].frontend == "trace" else "SCRIPT"
    yield heading("Other graphs", f"{len(targets)}; {source}::NAME shows one, --full shows all")
    diagnostics = [diagnostic for target in targets for diagnostic in target.diagnostics]
    lines = tuple(diagnostic_list(diagnostics, page))
    yield from (*lines, Text()) if lines else ()
    yield from table([_row(target) for target in targets[:few]], page.width)
    if len(targets) > few:
        text = f"and {counted(len(targets) - few, 'more graph')} ({page.rest})"
        yield from paragraph(text, page.width, "  ", "dim")
    yield Text()


def _row(target: Target) -> Row:
    saved = f"saves {human_bytes(target.partition.saved_bytes)}" if target.partition else ""
    where = f"{shown_path(target.span.file)}:{target.span.line}" if target.span else ""
    cells = (target.name, where, graph_counts(target), saved, signature(target))
    return Row(cells, ("cyan", "dim", "", "yellow", "dim"), clip=True)
