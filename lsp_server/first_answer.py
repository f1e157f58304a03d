"""The answer to `initialize`, given before the server is loaded, where it is known from an earlier start.

pygls and its protocol's types take up to half a second to load, which an editor would wait for. The answer
depends only on the client's capabilities, on our files and on those of pygls, so it is stored under their
digest.

Invariant: a stored answer was given by the loaded server. That server still handles the request, so that it
knows its client; it stores its own answer if that has changed.
"""

import importlib.util
import json
import logging
import os
import re
import select
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from aotlens._version import __version__
from aotlens.disk_cache import Store, digest, open_store

__all__ = ["LENGTH", "FirstAnswer", "Replayed", "answer_first"]

KIND = "lsp-initialize"
LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d+)[ \t]*\r?\n\Z", re.IGNORECASE)
"""The end of a line that starts a message."""
HEADER_LINES = 8
"""A message with more lines before its content is left to the server."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """The client's request `initialize`, and its answer if it was known."""

    number: str | int
    """The id of the request."""
    key: str
    store: Store | None
    result: object | None
    """The answer that was sent; None if the client still waits for one."""

    def learn(self, result: object) -> None:
        """Store the server's answer for the next start."""
        if result == self.result:
            return
        if self.result is not None:
            logger.error("the stored answer to `initialize` is not what this server gives")
        if self.store is not None:
            self.store.put(KIND, self.key, result)


class Replayed:
    """A stream of which the first bytes were read already."""

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._first = BytesIO(first)
        self._rest = rest

    def readline(self) -> bytes:
        line = self._first.readline()
        return line if line.endswith(b"\n") else line + self._rest.readline()

    def read(self, size: int) -> bytes:
        data = self._first.read(size)
        return data if len(data) == size else data + self._rest.read(size - len(data))


def answer_first(reader: BinaryIO, writer: BinaryIO) -> tuple[Replayed, FirstAnswer | None]:
    """Answer `initialize` if the client has sent it already and its answer is stored.

    Return the stream for the server, which gets the request too, and what to do with the server's answer.
    """
    data, request = _first_message(reader) if _has_data(reader) else (b"", None)
    replayed = Replayed(data, reader)
    if request is None or request.get("method") != "initialize" or "id" not in request:
        return replayed, None
    params = request.get("params")
    capabilities = params.get("capabilities") if isinstance(params, dict) else None
    key = digest(json.dumps(capabilities, sort_keys=True), *_programs())
    store = open_store()
    result = store.get(KIND, key) if store is not None else None
    if result is not None:
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.flush()
    return replayed, FirstAnswer(request["id"], key, store, result)


def _has_data(reader: BinaryIO) -> bool:
    """Return True if reading will not wait; where that is unknown, False."""
    if os.name == "nt":  # `select` knows only sockets there
        return False
    readable, _, _ = select.select([reader], [], [], 0)
    return bool(readable)


def _first_message(reader: BinaryIO) -> tuple[bytes, dict[str, Any] | None]:
    """Return the bytes that were read, and the message if they are one."""
    data, length = b"", 0
    for _ in range(HEADER_LINES):
        line = reader.readline()
        data += line
        if match := LENGTH.fullmatch(line):
            length = int(match[1])
        elif not length or not line.endswith(b"\n"):  # the server reports bytes outside of messages
            return data, None
        elif not line.strip():
            break
    else:
        return data, None
    body = reader.read(length)
    try:
        message = json.loads(body)
    except ValueError:
        message = None
    return data + body, message if isinstance(message, dict) else None


def _programs() -> Iterator[str]:
    """Yield what the answer depends on in addition to the client: the versions of the code that makes it."""
    yield f"{__version__} {sys.version_info} {sys.prefix}"
    own = Path(__file__).parent
    for file in sorted(own.rglob("*.py")):
        yield f"{file.name} {file.stat().st_mtime_ns}"
    for name in ("pygls", "lsprotocol"):
        spec = importlib.util.find_spec(name)  # does not load it
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            installed = Path(folder).parent  # where an upgrade of the package replaces its metadata
            yield f"{folder} {installed.stat().st_mtime_ns}"
