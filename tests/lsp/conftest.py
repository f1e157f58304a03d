"""Server processes for the tests of the language server."""

from collections.abc import Iterator

import pytest

from tests.language_servers import ROOT, STAND_IN
from tests.lsp.strict_client import Process, StrictClient


@pytest.fixture
def client() -> Iterator[StrictClient]:
    """A session over the stand-in for the worker, initialized with full capabilities."""
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT)
        yield process.client


@pytest.fixture(scope="module")
def session() -> Iterator[StrictClient]:
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT)
        yield process.client


@pytest.fixture
def shared(session: StrictClient) -> Iterator[StrictClient]:
    """One session for all tests of a file, as new for each: nothing open, nothing traced, no settings."""
    session.received.clear()
    yield session
    session.notify("workspace/didChangeConfiguration", {"settings": {"aotlens": {}}})
    for uri in session.opened:
        session.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    session.opened.clear()
    session.command("aotlens.clear")
