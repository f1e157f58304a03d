"""Open a log, or a folder of logs, and find each compilation's records in it.

Invariant: opening reads each byte once and keeps numbers only; a header or a text is read from disk on
demand, and no more than `MAX_TEXT_BYTES` of it.

    trace = open_trace(Path("logs"))            # a .log, a .log.gz, or a folder of them
    for process in trace.processes:             # one per process that wrote: .rank, .pid, .torch_version
        for compilation in process.compilations:    # .id "0/1", .attempt (the last), .attempts
            for record in compilation.records("aot_forward_graph"):
                process.header(record)          # the JSON value under the record's kind
                process.text(record)            # the payload, without tabs
            compilation.last("dynamo_output_graph")  # of the last attempt; None where there is none

`trace.kinds()` counts the records by kind, and `trace.notes` says what of the files could not be read.
`trace.refresh()` reads on.
"""

import hashlib
import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotlens.errors import UserError
from aotlens.trace.logs.log_file import LogFile, is_log, log_paths
from aotlens.trace.logs.safe_text import safe_text, safe_value
from aotlens.trace.logs.scan import Context, Kind, RecordTable, scan

__all__ = ["Compilation", "Frame", "Process", "Record", "Trace", "is_trace", "open_trace"]

MAX_TEXT_BYTES = 64 << 20
"""Of one payload: a graph of 100,000 nodes takes 20 MB."""
MAX_HEADER_BYTES = 16 << 20
MAX_STRINGS = 200_000
MAX_STRING = 4_096
_RANK_OF_NAME = re.compile(r"rank_(\d{1,9})[_.]")
_DIGEST = re.compile(rb'"has_payload": "([0-9a-f]{32})"\}?\s*$')
_STARTS = ("dynamo_start",)
_ROW_BITS = 40
_ROW = (1 << _ROW_BITS) - 1
"""The part of a record's key that is its row; the higher bits are its file."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record, without its texts."""

    kind: str
    """The header's first key, or an artifact's own name."""
    is_artifact: bool
    compile_id: str | None
    attempt: int
    file: int
    """The number of the trace's file that contains it."""
    row: int
    """Its number in that file, from 0."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a logged stack."""

    file: str
    """Empty if the log does not say."""
    line: int
    function: str
    code: str
    """The line's text; empty if the log does not have it."""


class Compilation:
    """One code object compiled once by one process: all attempts, forward and backward."""

    __slots__ = ("_rows", "id", "number", "process")

    def __init__(self, process: "Process", id: str, number: int) -> None:
        self.process = process
        self.id = id
        self.number = number
        """0 for the first of that id; `torch._dynamo.reset()` restarts the ids."""
        self._rows = array("Q")

    @property
    def code_id(self) -> str:
        """The number of the code object, which all its compilations share: `!0/3` of `!0/3/1`."""
        return self.id.rpartition("/")[0]

    def add(self, key: int) -> None:
        self._rows.append(key)

    def __len__(self) -> int:
        return len(self._rows)

    def records(self, *kinds: str) -> tuple[Record, ...]:
        """Return the records of these kinds, or all of them, in the order of the log."""
        trace = self.process.trace
        return tuple(trace.record(key) for key in (self._keys_of(kinds) if kinds else self._rows))

    def has(self, *kinds: str) -> bool:
        """Return True if there is a record of one of these kinds."""
        return next(self._keys_of(kinds), None) is not None

    def bytes_of(self, *kinds: str) -> int:
        """Return the size of the records of these kinds in the log, of all attempts."""
        return sum(map(self.process.trace.length_of, self._keys_of(kinds)))

    def _keys_of(self, kinds: tuple[str, ...]) -> Iterator[int]:
        """Yield the keys of the records of these kinds; all of them are in the file of the process."""
        table = self.process.trace.tables[self.process.file]
        wanted, column = table.rows_of_kinds(kinds), table.kind_rows
        return (key for key in self._rows if column[key & _ROW] in wanted)

    @property
    def attempt(self) -> int:
        """Return the last attempt: a graph break makes Dynamo start again."""
        return max((self.process.trace.context_of(key).attempt for key in self._rows), default=0)

    def last(self, *kinds: str) -> Record | None:
        """Return the last record of these kinds, in the last attempt that has one."""
        last = max(self._keys_of(kinds), default=None)  # keys of a file grow with the offset
        return None if last is None else self.process.trace.record(last)


class Process:
    """One process that wrote to one log."""

    def __init__(self, trace: "Trace", file: int, pid: str) -> None:
        self.trace = trace
        self.file = file
        self.pid = pid
        self.rank: int | None = None
        self.torch_version = ""
        self.strings: dict[int, str] = {}
        """File names by their number in this log."""
        self.compilations: list[Compilation] = []
        """In the order in which they started."""
        self.others = array("Q")
        """Records outside of any compilation."""
        self._newest: dict[str, Compilation] = {}

    @property
    def path(self) -> Path:
        return self.trace.files[self.file].path

    def header(self, record: Record) -> object:
        """Return the JSON value under the record's kind; None if the header is damaged."""
        return self.trace.header(record)

    def text(self, record: Record) -> str:
        """Return the payload; empty if there is none."""
        return self.trace.text(record)

    def raw_text(self, record: Record) -> bytes:
        """Return the payload as bytes; what is shown of it must be made safe."""
        return self.trace.raw_text(record)

    def frames(self, record: Record) -> tuple[Frame, ...]:
        """Return the stack of a record's value, the outermost frame first."""
        value = self.header(record)
        return self.stack(value.get("stack")) if isinstance(value, dict) else ()

    def stack(self, value: object) -> tuple[Frame, ...]:
        """Return a logged stack as frames, the outermost first."""
        entries = value if isinstance(value, list) else []
        return tuple(self._frame(entry) for entry in entries if isinstance(entry, dict))

    def _frame(self, entry: dict[str, object]) -> Frame:
        number, line = entry.get("filename"), entry.get("line")
        return Frame(
            self.strings.get(number, "") if isinstance(number, int) else "",
            line if isinstance(line, int) else 0,
            str(entry.get("name", "")),
            str(entry.get("loc", "")),
        )

    def compilation_of(self, id: str, kind: str, attempt: int) -> Compilation:
        """Return the compilation to which a record with this id belongs.

        After `torch._dynamo.reset()` the ids start again: a second first attempt is another compilation.
        """
        newest = self._newest.get(id)
        begins = kind in _STARTS and attempt == 0
        if newest is None or (begins and newest.has(*_STARTS)):
            number = 0 if newest is None else newest.number + 1
            newest = self._newest[id] = Compilation(self, id, number)
            self.compilations.append(newest)
        return newest


class Trace:
    """All logs of one path."""

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self.path = path
        self.files = tuple(LogFile(file) for file in files)
        self.tables = tuple(RecordTable() for _ in files)
        self.processes: list[Process] = []
        self._ended = [True for _ in files]
        self.refresh()

    def refresh(self) -> None:
        """Read what has been appended since the last time."""
        for file, (log, table) in enumerate(zip(self.files, self.tables, strict=True)):
            offset = log.size
            if len(table) and not log.is_compressed:
                offset = table.drop_last()
                log.step_back(offset)
            self._ended[file] = scan(log.blocks(), table, offset)
        self._group()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what could not be read, by file."""
        return tuple(note for file in range(len(self.files)) for note in self._notes(file))

    @property
    def processes_of_a_rank(self) -> int:
        """Return how many processes that compiled have one rank, or none: several runs may share a folder."""
        counts = Counter(process.rank for process in self.processes if process.compilations)
        return max(counts.values(), default=0)

    def _notes(self, file: int) -> Iterator[str]:
        log, table = self.files[file], self.tables[file]
        if log.damage:
            yield f"{log.path.name}: {log.damage}"
        if not self._ended[file]:
            yield f"{log.path.name}: the last record is cut off: the process was killed, or still writes"
        if table.foreign_lines:
            yield f"{log.path.name}: {table.foreign_lines} passages that torch did not write were skipped"

    def kinds(self) -> Counter[str]:
        """Return the number of records of each kind."""
        counts: Counter[str] = Counter()
        for table in self.tables:
            rows = Counter(table.kind_rows)
            for row, count in rows.items():
                counts[table.kinds[row].name] += count
        return counts

    def record(self, key: int) -> Record:
        file, row = key >> _ROW_BITS, key & _ROW
        context = self.context_of(key)
        kind = self.kind_of(key)
        return Record(kind.name, kind.is_artifact, context.compile_id, context.attempt, file, row)

    def kind_of(self, key: int) -> Kind:
        table = self.tables[key >> _ROW_BITS]
        return table.kinds[table.kind_rows[key & _ROW]]

    def length_of(self, key: int) -> int:
        """Return the bytes of the record in the log, header and payload."""
        return self.tables[key >> _ROW_BITS].lengths[key & _ROW]

    def header(self, record: Record) -> object:
        """Return the JSON value under the record's kind; None if the header is damaged."""
        try:
            header = json.loads(self._head(record))
        except (ValueError, RecursionError):
            return None
        return safe_value(next(iter(header.values()), None)) if isinstance(header, dict) else None

    def head(self, record: Record, length: int) -> str:
        """Return the beginning of the JSON text: enough for a value at the start of a long header."""
        return safe_text(self._head(record, length).decode("utf-8", "replace"))

    def text(self, record: Record) -> str:
        """Return the payload without its tabs; empty if there is none.

        Lines that do not start with a tab are from another program, written in between.
        """
        return safe_text(self.raw_text(record).decode("utf-8", "replace"))

    def digest(self, record: Record) -> str:
        """Return the MD5 of the payload from the log: equal for equal texts, empty without a payload."""
        match = _DIGEST.search(self._head(record)[-80:])
        return match[1].decode() if match else ""

    def is_whole(self, record: Record) -> bool:
        """Return False for a record that was cut off, or whose lines another process interrupted."""
        digest = self.digest(record)
        if not digest:
            return self.header(record) is not None
        return hashlib.md5(self.raw_text(record), usedforsecurity=False).hexdigest() == digest

    def _head(self, record: Record, length: int = MAX_HEADER_BYTES) -> bytes:
        table, row = self.tables[record.file], record.row
        start, end = table.head_starts[row], table.head_ends[row]
        return self.files[record.file].read(table.offsets[row] + start, min(end - start, length))

    def raw_text(self, record: Record) -> bytes:
        """Return the payload without its tabs as bytes; what is shown of it must be made safe."""
        table, row = self.tables[record.file], record.row
        start = table.head_ends[row] + 1
        length = min(table.lengths[row] - start, MAX_TEXT_BYTES)
        if length <= 0:  # the record is its header
            return b""
        raw = self.files[record.file].read(table.offsets[row] + start, length)
        if b"\r" in raw:
            raw = raw.replace(b"\r\n", b"\n")
        if raw.count(b"\n\t") == raw.rstrip(b"\n").count(b"\n") and raw.startswith(b"\t"):
            return raw[1:].replace(b"\n\t", b"\n")
        return b"\n".join(line[1:] for line in raw.split(b"\n") if line.startswith(b"\t"))

    def context_of(self, key: int) -> Context:
        """Return the process and the compilation of the record."""
        table = self.tables[key >> _ROW_BITS]
        return table.contexts[table.context_rows[key & _ROW]]

    def _group(self) -> None:
        """Sort all rows by process and compilation."""
        self.processes = []
        for file, table in enumerate(self.tables):
            self._group_file(file, table)
        self.processes.sort(key=lambda process: (process.rank is None, process.rank or 0))

    def _group_file(self, file: int, table: RecordTable) -> None:
        named = _RANK_OF_NAME.search(self.files[file].path.name)
        by_pid: dict[str, Process] = {}
        for row, (kind_row, context_row) in enumerate(zip(table.kind_rows, table.context_rows, strict=True)):
            context = table.contexts[context_row]
            process = by_pid.get(context.pid)
            if process is None:
                process = by_pid[context.pid] = Process(self, file, context.pid)
                process.rank = int(named[1]) if named else None
                self.processes.append(process)
            if process.rank is None:
                process.rank = context.rank
            kind, key = table.kinds[kind_row], file << _ROW_BITS | row
            if context.compile_id is not None:
                process.compilation_of(context.compile_id, kind.name, context.attempt).add(key)
            else:
                process.others.append(key)
                if kind.name in ("str", "torch_version"):
                    self._note_name(process, kind.name, self.record(key))

    def _note_name(self, process: Process, kind: str, record: Record) -> None:
        if kind == "torch_version":
            process.torch_version = _version(self.text(record))
            return
        value = self.header(record)
        if isinstance(value, list) and len(value) == 2 and len(process.strings) < MAX_STRINGS:
            name, number = value
            if isinstance(name, str) and isinstance(number, int):
                process.strings[number] = name[:MAX_STRING]


def _version(text: str) -> str:
    """Return `2.13.0` from the JSON that torch writes about itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    version = value.get("pytorch_version") if isinstance(value, dict) else value
    return safe_text(version[:80]) if isinstance(version, str) else ""


def is_trace(path: Path) -> bool:
    """Return True if the path is a log of torch by its content, or a folder with one."""
    return bool(log_paths(path)) if path.is_dir() else path.is_file() and is_log(path)


def open_trace(path: Path) -> Trace:
    """Open a log, or all logs in a folder.  Raises UserError if there is none."""
    files = log_paths(path)
    if not files:
        what = "has no log" if path.is_dir() else "is not a log"
        raise UserError(
            f"{path} {what} of torch.compile; run the script with TORCH_TRACE=FOLDER and name that folder"
        )
    return Trace(path, files)
