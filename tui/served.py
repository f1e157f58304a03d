"""Whether this app has a browser as its terminal, and which process serves it.

Invariant: the server is known by what it wrote into the app's environment, since it may have ended before the
app asks for its parent.
"""

import os
import threading
import time

SERVER_PID = "AOTLENS_SERVER_PID"
WATCH_S = 1.0
GRACE_S = 5.0
"""The time in which the app ends itself, with its worker."""


def is_served() -> bool:
    """Return True if textual-serve started this process, with a browser as its terminal."""
    return os.environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")


def server_pid() -> int:
    """Return the process that serves this app; where a shell is between them, the shell."""
    return int(os.environ.get(SERVER_PID) or os.getppid())


def end_after_server() -> None:
    """End this process some seconds after its server, whatever the app does then.

    An app that is still starting may be waiting for the pipe to the server; its worker ends with it.
    """
    server = server_pid()

    def watch() -> None:
        while os.getppid() == server:
            time.sleep(WATCH_S)
        time.sleep(GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="server", daemon=True).start()
