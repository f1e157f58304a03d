"""One log on disk as a sequence of bytes that can be read at any offset, compressed or not.

Invariant: a file is never loaded as a whole.  A compressed log is unpacked once, block by block, into an
unnamed temporary file of at most `MAX_UNPACKED_BYTES`, because gzip cannot seek.
"""

import re
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from aotlens.errors import UserError
from aotlens.view.quantities import human_bytes

__all__ = ["LogFile", "is_log", "log_paths"]

BLOCK_BYTES = 8 << 20
MAX_UNPACKED_BYTES = 4 << 30
"""The limit for a compressed log: a small hostile file can unpack to any size."""
MAX_FILES = 10_000
"""Further logs in a folder are ignored."""
MAX_DEPTH = 4
"""Levels of folders below the one that the user names."""
SNIFFED_BYTES = 1 << 16
READ_AHEAD_BYTES = 1 << 18
"""What is read at once for a short record: those of a compilation follow each other."""

GZIP_MAGIC = b"\x1f\x8b"
_RECORD = re.compile(rb"(?:^|\n)V\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [^\n]{1,300}?:\d+\] \{")


class LogFile:
    """A log's bytes; `blocks` continues from `size`, so that a growing file can be followed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        """Bytes that `blocks` has returned, after unpacking."""
        self.damage = ""
        """Why the rest could not be read; empty if all of it was."""
        self.is_compressed = _starts_with(path, GZIP_MAGIC)
        self._unpacked: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._ahead = 0, b""
        """An offset, and the bytes there; one value, because threads of the app read at the same time."""

    def blocks(self) -> Iterator[bytes]:
        """Yield what has not been read yet.  Raises UserError if the file cannot be read."""
        if self.is_compressed:
            if self._unpacked is None:
                yield from self._unpack()
            return
        try:
            with open(self.path, "rb") as file:
                file.seek(self.size)
                while block := file.read(BLOCK_BYTES):
                    self.size += len(block)
                    yield block
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}") from error

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at an offset; fewer at the end of the file."""
        if length > READ_AHEAD_BYTES:
            return self._read(offset, length)
        start, ahead = self._ahead
        if not start <= offset <= offset + length <= start + len(ahead):
            start, ahead = self._ahead = offset, self._read(offset, READ_AHEAD_BYTES)
        return ahead[offset - start : offset - start + length]

    def _read(self, offset: int, length: int) -> bytes:
        if self._unpacked is not None:
            with self._lock:
                self._unpacked.seek(offset)
                return self._unpacked.read(length)
        try:
            with open(self.path, "rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}") from error

    def step_back(self, offset: int) -> None:
        """Make `blocks` continue from an earlier offset, where a record may be longer now."""
        if not self.is_compressed:
            self.size = offset

    def _unpack(self) -> Iterator[bytes]:
        self._unpacked = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as this object
        weakref.finalize(self, self._unpacked.close)
        for unpacked in self._unpacked_blocks():
            block = unpacked[: MAX_UNPACKED_BYTES - self.size]
            self._unpacked.write(block)
            self.size += len(block)
            yield block
            if self.size >= MAX_UNPACKED_BYTES:
                self.damage = f"only the first {human_bytes(MAX_UNPACKED_BYTES)} of the unpacked log are read"
                return

    def _unpacked_blocks(self) -> Iterator[bytes]:
        """Yield blocks of at most `BLOCK_BYTES`, whatever the compression."""
        unpacker = None
        try:
            for packed in self._packed_blocks():
                rest = packed
                while rest:
                    unpacker = unpacker or zlib.decompressobj(wbits=31)
                    if block := unpacker.decompress(rest, BLOCK_BYTES):
                        yield block
                    rest = unpacker.unconsumed_tail
                    if unpacker.eof:  # a log may be several compressed parts in sequence
                        rest, unpacker = unpacker.unused_data.lstrip(b"\0"), None
        except zlib.error as error:
            self.damage = f"the compressed log is damaged: {error}"
            return
        if unpacker is not None:
            self.damage = "the compressed log ends early"
            yield unpacker.flush()[:BLOCK_BYTES]

    def _packed_blocks(self) -> Iterator[bytes]:
        try:
            with open(self.path, "rb") as file:
                while packed := file.read(1 << 20):
                    yield packed
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}") from error


def is_log(path: Path) -> bool:
    """Return True if the beginning of the file, unpacked if compressed, has a record of torch's log."""
    try:
        with open(path, "rb") as file:
            head = file.read(SNIFFED_BYTES)
    except OSError:
        return False
    if head.startswith(GZIP_MAGIC):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, SNIFFED_BYTES)
        except zlib.error:
            return False
    return _RECORD.search(head) is not None


def log_paths(path: Path) -> tuple[Path, ...]:
    """Return the logs of a path: the file itself, or those in a folder and below, by name.

    Links are not followed out of the folder, and a log is identified by its content, not its name.
    """
    if not path.is_dir():
        return (path,) if path.is_file() and is_log(path) else ()
    return tuple(sorted(file for file in _files(path, MAX_DEPTH) if is_log(file)))[:MAX_FILES]


def _files(folder: Path, depth: int) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            continue
        if entry.is_file():
            yield entry
        elif entry.is_dir() and depth and not entry.name.startswith("."):
            yield from _files(entry, depth - 1)


def _starts_with(path: Path, magic: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(magic)) == magic
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
