"""The sections on what of a log is not in its report: targets that were not read, and other records.

Invariant: each target and each unknown kind is named or counted; a full page has a row for every kind that
the report does not use.
"""

from collections.abc import Iterator

from rich.text import Text

from aotlens.model.log import Log
from aotlens.model.spans import location
from aotlens.render.text.layout import Page, Row, heading, paragraph, table
from aotlens.view.logs import UNKNOWN_WHY, processes_text, ranks_text, unknown_kinds_text
from aotlens.view.quantities import every_digit, human_bytes

__all__ = ["listed_target_lines", "process_lines", "unused_record_lines"]

FEW = 12


def listed_target_lines(log: Log, page: Page) -> Iterator[Text]:
    """Yield the targets whose graphs were not read, and how to read one."""
    if not log.listed:
        return
    shown = page.first(log.listed, FEW)
    yield heading(
        "Listed only", f"not read, as the log is large; {log.path}::{log.listed[0].compile_id} reads one"
    )
    rows = [
        Row(
            (
                target.compile_id,
                f"{target.qualname}{ranks_text(target.ranks)}",
                location(target.span) if target.span else "",
                target.mode,
                human_bytes(target.bytes),
            ),
            ("cyan", "", "dim", "dim", "dim"),
            clip=True,
        )
        for target in shown
    ]
    yield from table(rows, page.width, frozenset({4}))
    if hidden := log.listed_count - len(shown):
        more = "" if page.is_full else f" ({page.rest})"
        yield Text(f"  and {every_digit(hidden)} more{more}", "dim")
    yield Text()


def process_lines(log: Log | None, page: Page) -> Iterator[Text]:
    """Yield that the log has several processes where one is expected, such as several runs."""
    if text := processes_text(log):
        yield from paragraph(text, page.width, "", "yellow")
        yield Text()


def unused_record_lines(log: Log, page: Page) -> Iterator[Text]:
    """Yield the section; a short page has the unknown kinds only, in one sentence."""
    if not page.is_full:
        if unknown := unknown_kinds_text(log):
            yield from paragraph(f"{unknown}; {UNKNOWN_WHY}", page.width, "", "yellow")
            yield Text()
        return
    if not log.unused:
        return
    yield heading("Other records", "of kinds that the report does not use")
    rows = [
        Row((kind.name, str(kind.count), "" if kind.is_known else "unknown"), ("cyan", "", "yellow"))
        for kind in log.unused
    ]
    yield from table(rows, page.width, frozenset({1}))
    if unknown_kinds_text(log):
        yield from paragraph(f"unknown: {UNKNOWN_WHY}", page.width, "  ", "dim")
    yield Text()
