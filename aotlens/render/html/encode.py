"""The views' plain values as compact JSON: texts, roles and spans are numbers into tables.

part  [text, role] or [text, role, value], the number by which a table sorts
link  [[span, …], [span, …]], what a row stands for and what is related; 0 for none
line  [[part, …], link, [tab, key] or 0, whether it wraps]
row   [key, [part, …], link, [line, …], [[label, text, first, last], …], [row, …]]
group [[part, …], [position, …]], the cells of rows that are folded into one, and their positions
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aotlens.model.report import Span
from aotlens.view.tabs.source.files import SourceStore, SourceText, from_text
from aotlens.view.tabs.source.syntax import python
from aotlens.view.tabs.tables.rows import Cell, Line, Link, Listing, Part

__all__ = ["Encoder", "Json"]

Json = list[object] | dict[str, object] | str | int | None

NONE = 0


def units(line: str, column: int) -> int:
    """Return a column in UTF-16 units, which scripts of a page count."""
    return column if line.isascii() else column + sum(char > "\uffff" for char in line[:column])


def _column(text: SourceText, line: int, column: int) -> int:
    return units(text.lines[line - 1], column) if 1 <= line <= len(text.lines) else column


@dataclass(slots=True)
class Encoder:
    """Collects the tables while a page is built."""

    sources: SourceStore
    strings: dict[str, int] = field(default_factory=dict)
    roles: dict[str, int] = field(default_factory=dict)
    spans: dict[Span, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    texts: list[Json] = field(default_factory=list)
    """Programs, modules and kernels: generated, and long."""
    _text_numbers: dict[str, int] = field(default_factory=dict)

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def part(self, cell: Cell) -> Json:
        part = cell if isinstance(cell, Part) else Part(cell)
        encoded: list[object] = [
            self.string(part.text),
            self.roles.setdefault(part.role, len(self.roles)),
        ]
        return encoded if part.value is None else [*encoded, part.value]

    def span(self, span: Span) -> int:
        self.files.setdefault(span.file, len(self.files))
        return self.spans.setdefault(span, len(self.spans))

    def link(self, link: Link) -> Json:
        if not link.primary and not link.secondary:
            return NONE
        return [[self.span(span) for span in spans] for spans in (link.primary, link.secondary)]

    def line(self, line: Line) -> Json:
        jump: Json = NONE
        if line.jump is not None:
            target: list[Json] = [] if line.jump.target is None else [line.jump.target]
            jump = [line.jump.tab, self.string(line.jump.key), *target]
        return [[self.part(part) for part in line.parts], self.link(line.link), jump, int(line.wrap)]

    def lines(self, lines: Iterable[Line]) -> list[object]:
        return [self.line(line) for line in lines]

    def text(self, text: str) -> int:
        """Return the number of a generated text; the page colours its visible lines."""
        if text in self._text_numbers:
            return self._text_numbers[text]
        self._text_numbers[text] = len(self.texts)
        self.texts.append({"lines": [[line] for line in from_text(text).lines], "problem": ""})
        return self._text_numbers[text]

    def source(self, source: SourceText) -> Json:
        """Return a source's lines, with their coloured runs."""
        colours = python(source.lines)
        lines: list[object] = []
        for number, line in enumerate(source.lines, 1):
            runs = (
                (units(line, start), units(line, end), kind) for start, end, kind in colours(number, line)
            )
            lines.append([line, *(value for run in runs for value in run)])
        return {"lines": lines, "problem": source.problem}

    def table(self, listing: Listing, more: Sequence[Sequence[Json]] = ()) -> dict[str, object]:
        """Return a table with the details, texts and operands of each row."""
        rows: list[object] = []
        for index in range(len(listing.rows)):
            cells = [self.part(cell) for cell in listing.rows.cells(index)]
            own = more[index] if more else ()
            rows.append(
                [self.string(listing.rows.key(index)), cells, self.link(listing.rows.link(index)), *own]
            )
        columns = [
            [
                column.title,
                column.align,
                int(column.grows),
                column.widest,
                int(column.largest_first),
                column.drop,
                column.narrowest,
            ]
            for column in listing.columns
        ]
        data: dict[str, object] = {"kind": "table", "columns": columns, "rows": rows, "empty": listing.empty}
        return data if not listing.groups else {**data, "groups": self._groups(listing)}

    def _groups(self, listing: Listing) -> list[object]:
        """Return the folded rows: the cells of a group of several rows, and the positions of its rows."""
        groups: list[object] = []
        for group in listing.groups:
            folds = len(group.positions) > 1 and listing.group_cells is not None
            cells = listing.group_cells(group) if folds and listing.group_cells is not None else ()
            groups.append([[self.part(cell) for cell in cells], list(group.positions)])
        return groups

    def lines_block(self, lines: Iterable[Line]) -> dict[str, object]:
        return {"kind": "lines", "lines": self.lines(lines)}

    def tables(self) -> dict[str, object]:
        """Return the tables, when everything else is encoded."""
        spans: list[object] = []
        for span in self.spans:
            text = self.sources.get(span.file)
            spans.append(
                [
                    self.files[span.file],
                    span.line,
                    _column(text, span.line, text.columns(span, span.line)[0]),
                    span.end_line,
                    _column(text, span.end_line, text.columns(span, span.end_line)[1]),
                ]
            )
        return {
            "strings": list(self.strings),
            "roles": list(self.roles),
            "spans": spans,
            "texts": self.texts,
            "files": [
                {"name": file, **self._file(file)} for file in sorted(self.files, key=self.files.__getitem__)
            ],
        }

    def _file(self, file: str) -> dict[str, object]:
        data = self.source(self.sources.get(file))
        assert isinstance(data, dict)
        return data
