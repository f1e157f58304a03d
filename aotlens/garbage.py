"""Cyclic garbage collection, put off while many objects are made that all live on."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collections_put_off() -> Iterator[None]:
    """Within it the collector does not run by itself: it would look through every node made so far again
    and again, and find nothing to free.  Other threads' garbage waits as long."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
