"""The on-disk cache: entries that processes share, each under the digest of its inputs.

Invariant: an entry is data (JSON), never code, and is read only from a folder to which nobody else can write.
An entry that is truncated, damaged, of another version or of another owner counts as missing; a disk error
costs the entry and nothing else.
"""

import hashlib
import json
import logging
import os
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER_VARIABLE", "LIMIT_BYTES", "Store", "cache_folder", "digest", "open_store"]

FOLDER_VARIABLE = "AOTLENS_CACHE_DIR"
"""The cache folder; empty disables the cache."""
LIMIT_BYTES = 1 << 30
LARGEST_ENTRY_BYTES = 1 << 29
"""Of the decompressed data: an entry that exceeds it is damaged."""
EVICTION_TARGET = 0.8
"""The fraction of the limit that eviction leaves, so that it does not run again at the next entry."""

_FORMAT = b"aotlens-cache/1"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _File:
    """The file of an entry."""

    path: Path
    size_bytes: int
    used: float
    """When it was last written or read."""


def digest(*parts: str | bytes) -> str:
    """Return one digest for several texts; their order and boundaries count."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(b"%d:" % len(data))
        hashed.update(data)
    return hashed.hexdigest()


def cache_folder() -> Path | None:
    """Return the folder from `AOTLENS_CACHE_DIR`, else the user's cache folder; None where the cache is
    disabled."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named is not None:
        return Path(named).absolute() if named else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aotlens"


def open_store() -> "Store | None":
    """Return the user's store; None where there is none, or where others can write to its folder."""
    folder = cache_folder()
    if folder is None or not hasattr(os, "geteuid"):  # not every platform has file owners
        return None
    try:
        _make_private(folder)
    except OSError as error:
        _LOG.debug("no cache: %s", error)
        return None
    return Store(folder)


class Store:
    """Entries by kind and key; safe to use from several processes at once."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._stored_bytes: int | None = None
        """The size of all entries, as far as this process knows; None before it has looked."""

    def get(self, kind: str, key: str) -> object | None:
        """Return the JSON value of an entry; None if there is no valid one."""
        path = self._path(kind, key)
        try:
            value = _unpacked(_read_private(path), kind, key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, zlib.error, RecursionError) as error:
            _LOG.debug("ignored the entry %s: %s", path, error)
            return None
        with suppress(OSError):  # another process has just removed it, or the disk is read-only
            os.utime(path)
        return value

    def put(self, kind: str, key: str, value: object) -> None:
        """Store a JSON value; it replaces an older one atomically."""
        path, data = self._path(kind, key), _packed(kind, key, value)
        try:
            for folder in (path.parent.parent, path.parent):  # one by one: `parents=True` ignores the mode
                folder.mkdir(mode=0o700, exist_ok=True)
            write_atomically(path, data)
            self._evict(len(data))
        except OSError as error:
            _LOG.debug("did not keep the entry %s: %s", path, error)

    def size_bytes(self) -> int:
        """Return the size of all entries."""
        return sum(file.size_bytes for file in self._files())

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Return number and bytes of the entries of each kind, the largest kind first."""
        totals: dict[str, tuple[int, int]] = {}
        for file in self._files():
            kind = file.path.relative_to(self.folder).parts[0]
            number, size_bytes = totals.get(kind, (0, 0))
            totals[kind] = (number + 1, size_bytes + file.size_bytes)
        return dict(sorted(totals.items(), key=lambda item: -item[1][1]))

    def clear(self) -> tuple[int, int]:
        """Remove every entry and partial file; return their number and bytes."""
        files = list(self._files())
        for file in files:
            file.path.unlink(missing_ok=True)
        self._stored_bytes = 0
        return len(files), sum(file.size_bytes for file in files)

    def _path(self, kind: str, key: str) -> Path:
        return self.folder / kind / key[:2] / key

    def _evict(self, added_bytes: int) -> None:
        """Remove the least recently used entries once all entries exceed the limit."""
        if self._stored_bytes is not None:
            self._stored_bytes += added_bytes
            if self._stored_bytes <= self.limit_bytes:
                return
        files = sorted(self._files(), key=lambda file: file.used)
        stored_bytes = sum(file.size_bytes for file in files)
        if stored_bytes > self.limit_bytes:
            for file in files:
                if stored_bytes <= self.limit_bytes * EVICTION_TARGET:
                    break
                file.path.unlink(missing_ok=True)
                stored_bytes -= file.size_bytes
        self._stored_bytes = stored_bytes

    def _files(self) -> Iterator[_File]:
        """Yield every entry, including partial files of writers that were killed."""
        for path in self.folder.glob("*/*/*"):
            try:
                about = path.lstat()
            except OSError:  # another process has just removed it
                continue
            yield _File(path, about.st_size, about.st_mtime)


def _make_private(folder: Path) -> None:
    """Create the folder; raises OSError where that fails, or where others can write to it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to user {about.st_uid}")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others can write to {folder}: chmod go-w it, or name another folder")


def _read_private(path: Path) -> bytes:
    """Read a file; raises OSError if it is not a regular file of this user."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            raise PermissionError("no file of this user's")
        return file.read()


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a temporary file and rename it, so that readers never see a partial one; raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _packed(kind: str, key: str, value: object) -> bytes:
    body = zlib.compress(json.dumps(value, ensure_ascii=False, allow_nan=False).encode(), level=3)
    return b" ".join((_FORMAT, kind.encode(), key.encode(), _sum(body))) + b"\n" + body


def _unpacked(data: bytes, kind: str, key: str) -> object:
    """Return an entry's value; raises ValueError or zlib.error if `_packed` did not write it for this
    entry."""
    head, _, body = data.partition(b"\n")
    if head.split(b" ")[:3] != [_FORMAT, kind.encode(), key.encode()]:
        raise ValueError(f"it begins with {head[:80]!r}")
    if head.split(b" ")[3:] != [_sum(body)]:
        raise ValueError("it is cut off or damaged")
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(body, LARGEST_ENTRY_BYTES)
    if not unpacking.eof:
        raise ValueError(f"it holds more than {LARGEST_ENTRY_BYTES} bytes")
    value: object = json.loads(text)
    return value


def _sum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
