"""Drives the app without a terminal and without an engine: reports are posted as the worker's would be."""

import asyncio
from collections.abc import Awaitable, Callable

from textual.pilot import Pilot

from aotlens.report import Report
from aotlens.worker.protocol import Failure
from tests.report.sample import sample_report
from tui.app import AotlensApp
from tui.messages import TraceEnded, TraceProgress
from tui.tracing import NONE, Post, Questions
from tui.widgets.code import CodeView
from tui.widgets.lines import LineList
from tui.widgets.table import VirtualTable

Scenario = Callable[[AotlensApp, Pilot[int]], Awaitable[None]]
WIDE = (120, 40)
NARROW = (80, 24)


class FakeTracing:
    """Traces when the test says so."""

    def __init__(self) -> None:
        self.started: list[tuple[int, bool]] = []
        """Number of each trace, and whether it was to be fresh."""
        self.asked: list[Questions] = []
        """What each trace was asked beside."""
        self.post: Post = lambda message: None

    def start(self, trace: int, post: Post, fresh: bool, questions: Questions = NONE) -> None:
        self.started.append((trace, fresh))
        self.asked.append(questions)
        self.post = post

    def cancel(self) -> None:
        self.fail(Failure("cancelled", "the trace was cancelled"))

    def close(self) -> None:
        self.post = lambda message: None

    def progress(self, stage: str) -> None:
        self.post(TraceProgress(self.started[-1][0], stage))

    def answer(self, report: Report, output: str = "", trace: int | None = None) -> None:
        self.post(TraceEnded(trace or self.started[-1][0], report, None, output, 1240.0))

    def fail(self, failure: Failure, output: str = "") -> None:
        self.post(TraceEnded(self.started[-1][0], None, failure, output))


def drive(scenario: Scenario, app: AotlensApp | None = None, size: tuple[int, int] = WIDE) -> None:
    """Run a scenario on an app that shows the sample report."""
    shown = app or AotlensApp("model.py", report=sample_report())

    async def play() -> None:
        async with shown.run_test(size=size) as pilot:
            await pilot.pause()
            await scenario(shown, pilot)

    asyncio.run(play())


def table(app: AotlensApp, name: str) -> VirtualTable:
    return app.workbench.query_one(f"#{name}", VirtualTable)


def rows(app: AotlensApp, name: str, width: int = 200) -> list[str]:
    """The rows of a table as text, the blanks between columns folded."""
    shown = table(app, name)
    return [" | ".join(shown.row_copy(index).split("\t")) for index in range(shown.row_count)]


def lines(app: AotlensApp, name: str) -> list[str]:
    """The lines of a list as they were given, before wrapping."""
    return [line.text for line in app.workbench.query_one(f"#{name}", LineList).lines]


def source(app: AotlensApp) -> CodeView:
    return app.workbench.source.code


def lit(app: AotlensApp) -> list[str]:
    """The source text that is lit as the row's own."""
    view = source(app)
    return [
        view.text.lines[span.line - 1][slice(*view.text.columns(span, span.line))]
        for span in view.link.primary
    ]


def linked(app: AotlensApp, name: str) -> list[str]:
    """The keys of the rows marked as standing for the source's line."""
    shown = table(app, name)
    return [shown.listing.rows.key(shown.shown[place]) for place in sorted(shown.linked)]


async def select(app: AotlensApp, pilot: Pilot[int], name: str, key: str) -> None:
    """Put a table's cursor on the row of a key, as moving there would."""
    assert table(app, name).select(key, tell=True), f"no row {key} in {name}"
    await settle(pilot)


def screen_text(app: AotlensApp) -> str:
    """What the terminal shows, without colours."""
    strips = app.screen._compositor.render_strips()  # no public way gives the screen as text
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


async def settle(pilot: Pilot[int]) -> None:
    """Until posted messages are handled and what they changed is drawn."""
    await pilot.pause()
    await pilot.pause()
