"""A worker that answers with a report of the test's, and a client in this process."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import mcp_types as types
from mcp import Client

from aotlens.mcp.reports import Root
from aotlens.mcp.server import make_server
from aotlens.mcp.session import Session
from aotlens.model import Report, encode
from aotlens.model.failure import Failure
from aotlens.worker.client import SubmittedTrace, WorkerClient
from aotlens.worker.protocol import Answer, Progress, TraceOptions, TraceRequest

T = TypeVar("T")


@dataclass(slots=True)
class FakeWorker:
    """Answers each trace at once, unless it is `silent`."""

    report: Report | None = None
    failure: Failure | None = None
    output: str = ""
    silent: bool = False
    asked: list[tuple[str, str | None, TraceOptions]] = field(default_factory=list)
    cancelled: int = 0

    def submit(self, request: TraceRequest, on_progress: Callable[[Progress], None]) -> SubmittedTrace:
        path = request.path
        self.asked.append((path, request.qualname, request.options))
        on_progress(Progress(1, "capture", "step"))
        job = FakeJob(1, path, Future(), self)
        if not self.silent:
            data = None if self.report is None else encode(self.report)
            job.future.set_result(Answer(1, data, self.failure, self.output))
        return cast(SubmittedTrace, job)

    def close(self) -> None:
        """Nothing was started."""


@dataclass(slots=True)
class FakeJob:
    id: int
    path: str
    future: "Future[Answer]"
    worker: FakeWorker

    def cancel(self) -> None:
        self.worker.cancelled += 1
        failure = Failure("cancelled", f"the trace of {self.path} was cancelled")
        self.future.set_result(Answer(1, None, failure))


def session_in(folder: Path, worker: FakeWorker) -> Session:
    return Session(Root(folder.resolve()), cast(WorkerClient, worker))


def with_client(session: Session, use: Callable[[Client], Awaitable[T]]) -> T:
    """Connect a client to a server in this process, in the session's folder, as `aotlens mcp` is."""

    async def connected() -> T:
        async with Client(make_server(session)) as client:
            return await use(client)

    before = Path.cwd()
    os.chdir(session.root.folder)
    try:
        return asyncio.run(connected())
    finally:
        os.chdir(before)


def answer(session: Session, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured answer of one call, which must not be an error."""
    (result,) = results(session, (tool, arguments))
    assert not result.is_error, text(result)
    return cast(dict[str, Any], result.structured_content)


def error(session: Session, tool: str, **arguments: Any) -> str:
    """The message of one call, which must be an error."""
    (result,) = results(session, (tool, arguments))
    assert result.is_error, result.structured_content
    return text(result)


def results(session: Session, *calls: tuple[str, dict[str, Any]]) -> list[types.CallToolResult]:
    """Several calls of one client."""

    async def use(client: Client) -> list[types.CallToolResult]:
        return [await client.call_tool(name, arguments) for name, arguments in calls]

    return with_client(session, use)


def text(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def make_older(path: Path) -> Path:
    """Give a file a time before now, as a source has that nobody edits during a trace."""
    past = time.time() - 60
    os.utime(path, (past, past))
    return path
