"""Whether this app has a browser as its terminal, and which process serves it.

Invariant: the server is known by what it wrote into the app's environment, since it may have ended before the
app asks for its parent.
"""

import os

SERVER_PID = "AOTLENS_SERVER_PID"


def is_served() -> bool:
    """Return True if textual-serve started this process, with a browser as its terminal."""
    return os.environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")


def server_pid() -> int:
    """Return the process that serves this app; where a shell is between them, the shell."""
    return int(os.environ.get(SERVER_PID) or os.getppid())
