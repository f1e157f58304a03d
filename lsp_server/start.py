"""`aotlens lsp`: the options, the streams, and the first answer, before the server itself is loaded.

Invariant: nothing is imported here that loads pygls before `initialize` is answered from the cache.
"""

import argparse
import logging
import os
import sys
from typing import BinaryIO

from lsp_server.first_answer import answer_first

__all__ = ["LOOPBACK", "guard_standard_streams", "log_to", "main", "print_to_stderr"]

LOOPBACK = "127.0.0.1"


def main(argv: list[str]) -> int:
    """Serve one client; return 0 after an orderly end, 1 when the client left without `shutdown`."""
    options = _parser().parse_args(argv)
    log_to(options.log_file, options.verbose)
    if options.tcp is not None:
        from lsp_server.server import serve_one  # with pygls

        return serve_one(options.host, options.tcp)
    reader, writer = guard_standard_streams()
    replayed, first = answer_first(reader, writer)
    from lsp_server.server import serve_streams  # with pygls

    return serve_streams(replayed, writer, first)


def guard_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Take stdin and stdout for the protocol alone; later readers see no input, later prints go to stderr."""
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return reader, writer


def print_to_stderr(message: str) -> None:
    """Print a line for the person who started the server; stdout is the client's."""
    sys.stderr.write(f"aotlens lsp: {message}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    about = "The language server, on stdio by default."
    parser = argparse.ArgumentParser(prog="aotlens lsp", description=about, allow_abbrev=False)
    parser.add_argument("--stdio", action="store_true", help="serve on stdio (the default; editors pass it)")
    parser.add_argument(
        "--tcp", type=int, metavar="PORT", help=("serve one connection on this port; 0 takes a free port")
    )
    parser.add_argument(
        "--host", default=LOOPBACK, help="for --tcp (default: %(default)s, this machine only)"
    )
    parser.add_argument("--clientProcessId", type=int, help=argparse.SUPPRESS)  # editors pass it
    parser.add_argument(
        "--log-file", metavar="FILE", help=("write a log to this file; otherwise nothing is logged")
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log every message too")
    return parser


def log_to(file: str | None, verbose: bool) -> None:
    """Log to a file, or nowhere: an editor shows a server's stderr as errors."""
    root = logging.getLogger()
    if file is None:
        root.addHandler(logging.NullHandler())
        return
    shown = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(filename=file, format=shown, level=logging.INFO)
    # At INFO pygls writes every message's text.
    logging.getLogger("pygls").setLevel(logging.INFO if verbose else logging.WARNING)
