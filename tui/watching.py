"""Notices saved Python files, for `--watch`."""

import threading
from pathlib import Path

from tui.messages import SourceChanged
from tui.tracing import Post

DEBOUNCE_MS = 100
STEP_MS = 20


def watch_sources(path: str, post: Post, stop: threading.Event) -> None:
    """Block until `stop`; post the files of each burst of changes beside the script or below it."""
    from watchfiles import PythonFilter, watch  # takes a tenth of the time to the first screen

    folder = Path(path).resolve().parent
    for changes in watch(
        folder,
        watch_filter=PythonFilter(),
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        stop_event=stop,
        rust_timeout=500,
    ):
        post(SourceChanged(tuple(sorted({file for _, file in changes}))))
