"""Standard input and output, or one TCP connection.

Invariant: nothing but framed messages reaches the client: whatever prints in this process or in a child of
it goes to stderr, as one stray byte on stdout makes VS Code lose the stream for good.
"""

import asyncio
import logging
import os
import sys
from threading import Event
from typing import BinaryIO

from pygls.io_ import run_async

from lsp_server.app import Server

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


def guard_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Take stdin and stdout for the protocol alone; later readers see no input, later prints go to stderr."""
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return reader, writer


def tell(message: str) -> None:
    """A line for the person who started the server; stdout is the client's."""
    sys.stderr.write(f"aotlens lsp: {message}\n")
    sys.stderr.flush()


def serve_stdio(server: Server) -> int:
    """Serve until the client says exit or closes its end; the exit code that the protocol asks for."""
    reader, writer = guard_standard_streams()
    server.start_io(reader, writer)
    return server.exit_code


def serve_tcp(server: Server, host: str, port: int) -> int:
    """Serve the first client that connects, then end.

    Port 0 takes a free one; the address goes to stderr.
    """
    try:
        asyncio.run(_serve_tcp(server, host, port))
    except SystemExit:  # how pygls ends at the notification `exit`
        logger.info("the client said exit")
    return server.exit_code


async def _serve_tcp(server: Server, host: str, port: int) -> None:
    ended = asyncio.Event()
    taken = False

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        if taken:
            writer.close()
            return
        taken = True
        server.protocol.set_writer(writer)
        try:
            await run_async(Event(), reader, server.protocol, logger, server.report_server_error)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            logger.info("the connection ended: %s", error)
        finally:
            ended.set()

    listener = await asyncio.start_server(connected, host, port)
    for socket in listener.sockets:
        address = socket.getsockname()
        tell(f"listening on {address[0]}:{address[1]}")
    if host not in (LOOPBACK, "localhost", "::1"):
        tell("any machine that reaches this address can run code here")
    async with listener:
        await ended.wait()
