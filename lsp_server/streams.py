"""Where the server reads and writes: the standard streams, the log, and the address of this machine.

Invariant: nothing but the protocol reaches the client's stream.
"""

import logging
import os
import sys
from typing import BinaryIO

__all__ = ["LOOPBACK", "guard_standard_streams", "log_to", "print_to_stderr"]

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


def print_to_stderr(message: str) -> None:
    """Print a line for the person who started the server; stdout is the client's."""
    sys.stderr.write(f"aotlens lsp: {message}\n")
    sys.stderr.flush()


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
