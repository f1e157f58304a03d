"""The text model, the columns and the line map, against references written the slow way."""

import ast
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.text.document import Document, TextChange, contents, split_lines
from lsp_server.text.linemap import LineMap
from lsp_server.text.parsing import parse, parsing
from lsp_server.text.positions import Encoding, char_index, convert, width
from lsp_server.views import read_lines

ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
TEXT = st.text(alphabet="ab \t\n\r\f\u2028é漢🙂", max_size=60)


def test_a_file_is_read_in_the_encoding_that_it_declares(tmp_path: Path) -> None:
    text = "# -*- coding: latin-1 -*-\nname = 'café'\n"
    path = tmp_path / "latin.py"
    path.write_bytes(text.encode("latin-1"))
    assert LineMap(read_lines(str(path)), contents(text)).is_identity
    path.write_bytes(b"# -*- coding: no-such-codec -*-\n")
    assert read_lines(str(path)) == ["# -*- coding: no-such-codec -*-", ""]


def test_a_fault_of_the_parser_is_tried_again() -> None:
    faults = [SystemError("AST constructor recursion depth mismatch"), None]

    def work() -> str:
        if (fault := faults.pop(0)) is not None:
            raise fault
        return "parsed"

    assert parsing(work) == "parsed"
    assert faults == []
    assert parse("def f(:") is None


@pytest.mark.rotates
def test_threads_parse_one_after_another() -> None:
    running, most = [], []

    def work() -> int:
        running.append(1)
        most.append(len(running))
        tree = ast.parse("x = [[[1]]]\n" * 2000)
        running.pop()
        return len(tree.body)

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: parsing(work), range(24))) == {2000}
    assert set(most) == {1}


def test_columns_in_every_encoding() -> None:
    line = 'x = "漢🙂é"; y'
    units = {encoding: width(line[:9], encoding) for encoding in ENCODINGS}
    assert units == {"utf-8": 15, "utf-16": 10, "utf-32": 9}
    assert [char_index(line, units[encoding], encoding) for encoding in ENCODINGS] == [9, 9, 9]
    assert convert(line, 15, "utf-8", "utf-16") == 10
    assert char_index(line, 9, "utf-8") == 6  # inside the emoji: its start
    assert char_index(line, 99, "utf-16") == len(line)


@given(TEXT, st.integers(0, 80), st.sampled_from(ENCODINGS), st.sampled_from(ENCODINGS))
def test_a_column_survives_the_way_there_and_back(
    text: str, index: int, source: Encoding, wanted: Encoding
) -> None:
    line = contents(text)[0]
    units = width(line[:index], source)
    assert convert(line, convert(line, units, source, wanted), wanted, source) == units


@given(TEXT)
def test_lines_are_the_protocols_and_lose_nothing(text: str) -> None:
    lines = split_lines(text)
    assert "".join(lines) == text
    assert contents(text) == text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@dataclass(frozen=True)
class Edit:
    """An edit by offsets in the text, which a reference can apply by slicing."""

    start: float
    length: int
    text: str


EDITS = st.lists(
    st.builds(Edit, st.floats(0, 1), st.integers(0, 12), st.text("ab\n\r漢🙂 ", max_size=6)), max_size=30
)


def _position(text: str, offset: int, encoding: Encoding) -> tuple[int, int]:
    before = contents(text[:offset])
    return len(before) - 1, width(before[-1], encoding)


def _offsets(text: str, edit: Edit) -> tuple[int, int]:
    """Where the edit starts and ends, never between `\\r` and `\\n`, which no client can address."""
    start = round(edit.start * len(text))
    end = min(start + edit.length, len(text))

    def outside(offset: int) -> int:
        return offset - 1 if text[offset - 1 : offset + 1] == "\r\n" and offset else offset

    return outside(start), outside(end)


@settings(max_examples=200)
@given(TEXT, EDITS, st.sampled_from(ENCODINGS))
def test_random_edits_give_the_text_that_slicing_gives(
    text: str, edits: list[Edit], encoding: Encoding
) -> None:
    document, expected = Document("file:///a.py", text, 1), text
    for edit in edits:
        start, end = _offsets(expected, edit)
        change = TextChange(
            edit.text, _position(expected, start, encoding), _position(expected, end, encoding)
        )
        document.apply(change, encoding)
        expected = expected[:start] + edit.text + expected[end:]
        assert (document.text, document.lines) == (expected, contents(expected))


@settings(max_examples=200)
@given(TEXT, EDITS)
def test_the_line_map_shows_only_lines_that_are_as_they_were_traced(text: str, edits: list[Edit]) -> None:
    document = Document("file:///a.py", text, 1)
    traced = list(document.lines)
    lines = LineMap(traced, traced)
    for edit in edits:
        before = document.text
        start, end = _offsets(before, edit)
        first, last = _position(before, start, "utf-16"), _position(before, end, "utf-16")
        kept = {line: lines.to_traced(line) for line in range(len(document.lines))}
        grown = len(contents(before[:start] + edit.text)) - len(contents(before[:end]))
        lines.edit(document.apply(TextChange(edit.text, first, last), "utf-16"))
        shown = [lines.to_traced(line) for line in range(len(document.lines))]
        for line, origin in enumerate(shown):
            if origin is not None:
                assert document.lines[line] == traced[origin]
                assert lines.to_current(origin) == line
        standing = [origin for origin in shown if origin is not None]
        assert standing == sorted(set(standing))
        _check_untouched_lines(kept, shown, document.text, (first[0], last[0], grown))


def _check_untouched_lines(
    kept: dict[int, int | None], shown: list[int | None], text: str, where: tuple[int, int, int]
) -> None:
    """Lines outside the edit keep their descent, unless the whole text came back to what was traced."""
    first, last, grown = where
    if "\r" in text or shown == list(range(len(shown))):
        return
    for line, origin in kept.items():
        if line < first:
            assert shown[line] == origin
        elif line > last:
            assert shown[line + grown] == origin


def test_undo_shows_the_line_again() -> None:
    document = Document("file:///a.py", "a\nb\nc\n", 1)
    lines = LineMap(document.lines, document.lines)

    def type_at(line: int, start: int, end: int, text: str) -> None:
        lines.edit(document.apply(TextChange(text, (line, start), (line, end)), "utf-16"))

    type_at(1, 1, 1, "!")
    assert [lines.to_current(line) for line in range(4)] == [0, None, 2, 3]
    type_at(0, 0, 0, "new\n")
    assert [lines.to_current(line) for line in range(4)] == [1, None, 3, 4]
    type_at(2, 1, 2, "")
    assert [lines.to_current(line) for line in range(4)] == [1, 2, 3, 4]


def test_a_span_over_several_lines_stands_only_while_all_of_them_do() -> None:
    document = Document("file:///a.py", "a\nb\nc\n", 1)
    lines = LineMap(document.lines, document.lines)
    assert lines.block_to_current(0, 2) == 0
    lines.edit(document.apply(TextChange("\n", (1, 0), (1, 0)), "utf-16"))
    assert (lines.block_to_current(0, 0), lines.block_to_current(1, 2)) == (0, 2)
    assert lines.block_to_current(0, 2) is None


def test_two_texts_without_the_edits_between_them() -> None:
    lines = LineMap(["a", "b", "c", "d"], ["new", "a", "c", "x", "d"])
    assert [lines.to_current(line) for line in range(4)] == [1, None, 2, 4]
