"""Choose the server: one that forks where a process with torch can be forked safely, or one that spawns.

`AOTLENS_WORKER_START` chooses explicitly: `fork` or `spawn`.
"""

import os
import sys

from aotlens.errors import UserError

__all__ = ["VARIABLE", "main", "start_method"]

VARIABLE = "AOTLENS_WORKER_START"


def start_method() -> str:
    """Return `fork` on Linux, `spawn` on macOS, whose frameworks do not survive a fork, and elsewhere.

    Raises UserError for a choice that this system does not have.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen not in (None, "", "fork", "spawn"):
        raise UserError(f"{VARIABLE} is {chosen!r}; it can be `fork` or `spawn`")
    can_fork = hasattr(os, "fork")
    if chosen == "fork" and not can_fork:
        raise UserError(f"{VARIABLE} is `fork`, which this system does not have; leave it out")
    return chosen or ("fork" if can_fork and sys.platform != "darwin" else "spawn")


def main() -> int:
    """Serve the client on stdin and stdout; return the exit code."""
    try:
        method = start_method()
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    if method == "fork":
        from aotlens.worker.server import main as serve
    else:
        from aotlens.worker.spawning_server import main as serve
    return serve()
