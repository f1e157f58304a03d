"""Standard input and output, or one TCP connection.

Invariant: only framed messages reach the client: prints of this process or of its children go to stderr,
since one stray byte on stdout makes VS Code lose the stream for good. In the other direction, bytes outside
of messages cost at most the messages that they touch.
"""

import asyncio
import gc
import logging
import re
import sys
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, BinaryIO, cast

from pygls.exceptions import JsonRpcException
from pygls.io_ import StdinAsyncReader, StdoutWriter, run_async

from lsp_server.app import Server
from lsp_server.first_answer import LENGTH, FirstAnswer, Replayed
from lsp_server.protocol import Protocol
from lsp_server.streams import LOOPBACK, print_to_stderr

if TYPE_CHECKING:
    from pygls.io_ import AsyncReader  # which it has for type checkers only

logger = logging.getLogger(__name__)

TURN_S = 0.0002
"""The time that a thread runs while another waits."""
HEADER = re.compile(rb"(?:content-type[ \t]*:.*)?\r?\n\Z", re.IGNORECASE)
"""Lines that may come between messages."""


class Frames:
    """A reader that finds the next message after bytes that belong to none."""

    def __init__(self, reader: "AsyncReader", on_stray: Callable[[bytes], None]) -> None:
        self._reader = reader
        self._on_stray = on_stray

    async def readline(self) -> bytes:
        """Return the next line of a header; of a line that ends in one, only that part."""
        try:
            line = await self._reader.readline()
        except ValueError as error:  # a TCP stream has a longest line
            raise ConnectionError(str(error)) from error
        match = LENGTH.search(line)
        if match is None:
            if line and not HEADER.match(line):
                self._on_stray(line)
            return line
        if match.start() > 0:
            self._on_stray(line[: match.start()])
        return b"Content-Length: %s\r\n" % match[1]

    async def readexactly(self, n: int) -> bytes:
        return await self._reader.readexactly(n)


def keep_the_loop_free() -> None:
    """Let the loop run while other threads read reports of megabytes.

    A report is plain data without cycles; the garbage collector would scan every object again and again while
    it grows, and nothing else may run meanwhile.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 50, 50)
    sys.setswitchinterval(TURN_S)


def serve_stdio(server: Server, reader: Replayed, writer: BinaryIO, first: FirstAnswer | None = None) -> int:
    """Serve until the client sends exit or closes its end; return the exit code of the protocol.

    `first` is its request `initialize`, if it was read already.
    """
    keep_the_loop_free()
    assert isinstance(server.protocol, Protocol)
    server.protocol.first = first
    server.protocol.set_writer(StdoutWriter(writer))
    try:
        asyncio.run(_serve(server, StdinAsyncReader(cast("BinaryIO", reader), server.thread_pool)))
    except (BrokenPipeError, KeyboardInterrupt, SystemExit):  # pygls ends so at the notification `exit`
        logger.info("the session ended")
    finally:
        server.shutdown()
    return server.exit_code


async def _serve(server: Server, reader: "AsyncReader") -> None:
    def on_stray(data: bytes) -> None:
        error = ValueError(f"these bytes are not part of a message: {data[:200]!r}")
        server.report_server_error(error, JsonRpcException)

    frames = Frames(reader, on_stray)
    await run_async(Event(), frames, server.protocol, logger, server.report_server_error)


def serve_tcp(server: Server, host: str, port: int) -> int:
    """Serve the first client that connects, then end.

    Port 0 takes a free one; the address goes to stderr.
    """
    keep_the_loop_free()
    try:
        asyncio.run(_serve_tcp(server, host, port))
    except SystemExit:  # how pygls ends at the notification `exit`
        logger.info("the client sent exit")
    return server.exit_code


async def _serve_tcp(server: Server, host: str, port: int) -> None:
    ended = asyncio.Event()
    is_connected = False

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal is_connected
        if is_connected:
            writer.close()
            return
        is_connected = True
        server.protocol.set_writer(writer)
        try:
            await _serve(server, reader)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            logger.info("the connection ended: %s", error)
        finally:
            ended.set()

    listener = await asyncio.start_server(connected, host, port)
    for socket in listener.sockets:
        address = socket.getsockname()
        print_to_stderr(f"listening on {address[0]}:{address[1]}")
    if host not in (LOOPBACK, "localhost", "::1"):
        print_to_stderr("any machine that reaches this address can run code here")
    async with listener:
        await ended.wait()
