"""Split a log into records, with a row of numbers for each.

Invariant: no JSON is parsed here and no text is copied: a row holds a record's offset, kind and context, so a
log of any size takes about 24 bytes per record.

A record is a line `V1123 07:33:04.388000 PID torch/FILE.py:LINE] {"KIND": …, CONTEXT}` and the following
lines that start with a tab.  A line of `V` and a digit begins the next one; other lines are foreign.
"""

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from aotlens.trace.logs.safe_text import safe_text

__all__ = ["Context", "Kind", "RecordTable", "scan"]

MAX_PREFIX = 400
"""Bytes before the JSON object: level, date, process, the emitting file."""
MAX_TAIL = 260
"""Bytes at the end of a header that contain the context."""
MAX_PENDING = 16 << 20
"""The most that is held in memory of a record without its end."""
MAX_HEAD = 1 << 20
MAX_KINDS = 5_000
MAX_CONTEXTS = 1 << 20
_MAX_MEMO = 50_000
_ARTIFACT = b'{"artifact": {"name": "'
_PAYLOAD = b', "has_payload": "'
_PAYLOAD_TAIL = len(_PAYLOAD) + 32 + len('"}')
_CONTEXT = re.compile(
    rb'"(rank|compiled_autograd_id|frame_id|frame_compile_id|attempt)": "?([A-Za-z0-9_-]{1,20})'
)


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a record: the header's first key, or the name of an artifact."""

    name: str
    is_artifact: bool


@dataclass(frozen=True, slots=True)
class Context:
    """The process of a record, and its compilation."""

    pid: str
    rank: int | None
    compile_id: str | None
    """As torch prints it: `0/1`, `!0/1/0` under compiled autograd."""
    attempt: int


OTHER = Kind("(more than 5,000 kinds)", False)


class RecordTable:
    """All records of one log, in order, as columns."""

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.head_starts = array("I")
        """The start of the JSON object, relative to the record's offset."""
        self.head_ends = array("I")
        self.lengths = array("Q")
        """Header and payload; of a record that is still being written, the part so far."""
        self.kind_rows = array("I")
        self.context_rows = array("I")
        self.kinds: list[Kind] = []
        self.contexts: list[Context] = []
        self.foreign_lines = 0
        """Stretches of text that are no records of torch."""
        self._kind_memo: dict[tuple[bool, bytes], int] = {}
        self._rows_of_kinds: dict[tuple[int, tuple[str, ...]], frozenset[int]] = {}
        self._context_memo: dict[bytes, int] = {}
        self._context_rows: dict[Context, int] = {}

    def __len__(self) -> int:
        return len(self.offsets)

    def rows_of_kinds(self, names: tuple[str, ...]) -> frozenset[int]:
        """Return the numbers of the kinds with these names, as in `kind_rows`."""
        key = len(self.kinds), names
        rows = self._rows_of_kinds.get(key)
        if rows is None:
            rows = frozenset(row for row, kind in enumerate(self.kinds) if kind.name in names)
            self._rows_of_kinds[key] = rows
        return rows

    def drop_last(self) -> int:
        """Remove the last record, which may have grown, and return its offset."""
        for column in (self.head_starts, self.head_ends, self.lengths, self.kind_rows, self.context_rows):
            column.pop()
        return self.offsets.pop()

    def add(self, text: bytes, start: int, end: int, offset: int) -> bool:
        """Add the record at `text[start:end]`, whose offset in the log is `offset`."""
        brace = text.find(b"] {", start, min(end, start + MAX_PREFIX)) + 2
        if brace < 2:
            self.foreign_lines += 1
            return False
        head_end = text.find(b"\n", brace, end)
        if head_end < 0:
            head_end = end
        self.offsets.append(offset)
        self.head_starts.append(brace - start)
        self.head_ends.append(head_end - start)
        self.lengths.append(end - start)
        self.kind_rows.append(self._kind(text, brace, head_end))
        self.context_rows.append(self._context(text, start, brace, head_end))
        return True

    def _kind(self, text: bytes, brace: int, head_end: int) -> int:
        is_artifact = text.startswith(_ARTIFACT, brace)
        name_start = brace + (len(_ARTIFACT) if is_artifact else 2)
        name_end = text.find(b'"', name_start, min(head_end, name_start + 200))
        key = is_artifact, text[name_start : max(name_end, name_start)]
        row = self._kind_memo.get(key)
        if row is None:
            if len(self.kinds) >= MAX_KINDS:
                return MAX_KINDS - 1
            kind = Kind(safe_text(key[1].decode("utf-8", "replace")), is_artifact)
            row = self._kind_memo[key] = len(self.kinds)
            self.kinds.append(kind if row < MAX_KINDS - 1 else OTHER)
        return row

    def _context(self, text: bytes, start: int, brace: int, head_end: int) -> int:
        """Return the row of the context, which is last in a header; quotes in values are escaped."""
        stop = head_end - _PAYLOAD_TAIL
        if not text.startswith(_PAYLOAD, stop):
            stop = head_end
        cut = text.rfind(b'}, "', max(brace, stop - MAX_TAIL), stop)
        if cut < 0:
            cut = max(brace, stop - MAX_TAIL)
        pid_start = start + 22
        key = text[pid_start : text.find(b" ", pid_start, brace)] + text[cut:stop]
        row = self._context_memo.get(key)
        if row is None:
            if len(self._context_memo) >= _MAX_MEMO:
                self._context_memo.clear()
            row = self._context_memo[key] = self._context_row(key)
        return row

    def _context_row(self, key: bytes) -> int:
        context = _context_of(key)
        row = self._context_rows.get(context)
        if row is None:
            row = min(len(self.contexts), MAX_CONTEXTS)
            if row == MAX_CONTEXTS:
                context = Context("", None, None, 0)
            self._context_rows[context] = row
            if row == len(self.contexts):
                self.contexts.append(context)
        return row


def _context_of(key: bytes) -> Context:
    pid = re.match(rb"\d{1,20}", key)
    fields = {name: value.decode() for name, value in _CONTEXT.findall(key) if value != b"null"}
    rank, attempt = fields.get(b"rank", ""), fields.get(b"attempt", "")
    autograd, frame = fields.get(b"compiled_autograd_id"), fields.get(b"frame_id")
    compile_id = None
    if frame is not None or autograd is not None:
        compile_id = f"{frame or '-'}/{fields.get(b'frame_compile_id', '-')}"
        compile_id = compile_id if autograd is None else f"!{autograd}/{compile_id}"
    return Context(
        pid[0].decode() if pid else "",
        int(rank) if rank.isdigit() else None,
        compile_id,
        int(attempt) if attempt.isdigit() else 0,
    )


def scan(blocks: Iterable[bytes], table: RecordTable, offset: int) -> bool:
    """Add the records of the blocks, which start at that offset of the log, to the table.

    Returns True if the last record ends with its newline, so that nothing of it seems to be missing.
    """
    buffer, base = b"\n", offset - 1  # the first record also starts at the beginning of a line
    pending = Pending()
    for block in blocks:
        if pending.is_open:
            rest = pending.read(block)
            if rest is None:
                continue
            pending.close(table)
            buffer, base = b"\n" + rest, pending.end
        else:
            buffer += block
        last = _add_whole(buffer, base, table)
        buffer, base = buffer[last:], base + last
        if len(buffer) > MAX_PENDING:
            pending.open(buffer[1:], base + 1)
            buffer = b""
    if pending.is_open:
        return pending.close(table)
    if buffer[1:].startswith(b"V"):
        is_ended = buffer.endswith(b"\n")
        table.add(buffer, 1, len(buffer.rstrip(b"\r\n")), base + 1)
        return is_ended
    return True


def _add_whole(buffer: bytes, base: int, table: RecordTable) -> int:
    """Add every complete record of the buffer; return the position of the newline before the last one."""
    last = _next_start(buffer, 0)
    if last < 0:
        return max(len(buffer) - 2, 0) if not buffer.startswith(b"\nV") else 0
    while (following := _next_start(buffer, last + 2)) >= 0:
        table.add(buffer, last + 1, following, base + last + 1)
        last = following
    return last


def _next_start(buffer: bytes, position: int) -> int:
    """Return the position of the next newline before a record; -1 if there is none."""
    position = buffer.find(b"\nV", position)
    while position >= 0 and not buffer[position + 2 : position + 3].isdigit():
        if position + 2 >= len(buffer):
            return -1
        position = buffer.find(b"\nV", position + 2)
    return position


class Pending:
    """A record longer than `MAX_PENDING`: its beginning, and its length so far."""

    def __init__(self) -> None:
        self.is_open = False
        self.head = b""
        self.start = 0
        self.end = 0
        self._last = b""

    def open(self, text: bytes, offset: int) -> None:
        self.is_open = True
        self.head, self.start, self.end = text[:MAX_HEAD], offset, offset + len(text)
        self._last = text[-2:]

    def read(self, block: bytes) -> bytes | None:
        """Read a block; return what follows the record, or None if the record continues."""
        joined = self._last + block  # a block may end within the newline, `V` and digit that begin a record
        position = _next_start(joined, 0)
        if position >= 0:
            self.end += position - len(self._last)
            self._last = b""
            return joined[position + 1 :]
        self.end += len(block)
        self._last = joined[-2:]
        return None

    def close(self, table: RecordTable) -> bool:
        """Add the record; if its header alone is too long, its context is unknown.

        Returns True if it ends with a newline.
        """
        self.is_open = False
        is_ended = self._last.endswith(b"\n")
        if table.add(self.head, 0, len(self.head), self.start):
            table.lengths[-1] = self.end - self.start - is_ended
        return is_ended
