"""Drives the app without a terminal and without an engine: reports are posted as the worker's would be."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import textual.app
import textual.pilot
from textual.app import App
from textual.pilot import Pilot

from aotlens.model import Report
from aotlens.model.failure import Failure
from tests.report.sample import MODEL, sample_report
from tui.app import AotlensApp
from tui.messages import TraceEnded, TraceProgress
from tui.tracing import NONE, Post, Questions, Texts
from tui.widgets.code import CodeView
from tui.widgets.lines import LineList
from tui.widgets.table import VirtualTable

Scenario = Callable[[AotlensApp, Pilot[int]], Awaitable[None]]
WIDE = (120, 40)
NARROW = (80, 24)
FRAME_S = 0.005
TURNS = 12
"""Turns of the event loop in which nothing waits: more than any handler takes to make something wait."""
PATIENCE_S = 120.0


class FakeTracing:
    """Traces when the test says so."""

    def __init__(self) -> None:
        self.started: list[tuple[int, bool]] = []
        """Number of each trace, and whether it was to be fresh."""
        self.asked: list[Questions] = []
        """What each trace was asked beside."""
        self.post: Post = lambda message: None
        self.weighed: list[tuple[int, str]] = []
        """Number and change of each question about the selection."""
        self.tried: list[tuple[int, Texts]] = []
        """Number and edited files of each trial."""

    gpu: str | None = None

    def choose_gpu(self, name: str | None) -> None:
        self.gpu = name

    def weigh(self, number: int, change: str, post: Post) -> None:
        self.weighed.append((number, change))
        self.post = post

    def try_texts(self, number: int, texts: Texts, post: Post) -> None:
        self.tried.append((number, texts))
        self.post = post

    def start(self, trace: int, post: Post, fresh: bool, questions: Questions = NONE) -> None:
        self.started.append((trace, fresh))
        self.asked.append(questions)
        self.post = post

    def cancel(self) -> None:
        self.fail(Failure("cancelled", "the trace was cancelled"))

    def close(self) -> None:
        self.post = lambda message: None

    def progress(self, stage: str, detail: str = "") -> None:
        self.post(TraceProgress(self.started[-1][0], stage, detail))

    def answer(self, report: Report, output: str = "", trace: int | None = None) -> None:
        self.post(TraceEnded(trace or self.started[-1][0], report, None, output, 1240.0))

    def answer_again(self, report: Report) -> None:
        """Nothing has changed since the trace before."""
        self.post(TraceEnded(self.started[-1][0], report, None, "", None))

    def answer_with_failure(self, report: Report, failure: Failure, output: str = "") -> None:
        """The script failed after the report's targets were traced."""
        self.post(TraceEnded(self.started[-1][0], report, failure, output, 1240.0))

    def fail(self, failure: Failure, output: str = "") -> None:
        self.post(TraceEnded(self.started[-1][0], None, failure, output))


def drive(scenario: Scenario, app: AotlensApp | None = None, size: tuple[int, int] = WIDE) -> None:
    """Run a scenario on an app that shows the sample report."""
    shown = app or AotlensApp("model.py", report=sample_report())

    async def play() -> None:
        _wait_for_events_alone()
        async with shown.run_test(size=size):
            pilot = SteadyPilot(shown)
            await pilot.pause()
            await scenario(shown, pilot)

    asyncio.run(play())


def _wait_for_events_alone() -> None:
    """Leave out the waits of Textual's pilot, two a key, until the process is idle: `settled` does that."""

    async def next_turn(min_sleep: float = 0, max_sleep: float = 0) -> None:
        await asyncio.sleep(0)

    textual.app.wait_for_idle = textual.pilot.wait_for_idle = next_turn  # type: ignore[attr-defined]


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
    assert table(app, name).select(key, notify=True), f"no row {key} in {name}"
    await settle(pilot)


def screen_text(app: AotlensApp) -> str:
    """What the terminal shows, without colours."""
    strips = app.screen._compositor.render_strips()  # no public way gives the screen as text
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


class SteadyPilot(Pilot[int]):
    """Goes on once a key is answered, however slow the machine.

    Textual's own takes a process that the machine gives no time for one that has nothing to do.
    """

    async def press(self, *keys: str) -> None:
        for key in keys:
            await super().press(key)
            await settled(self.app)

    async def pause(self, delay: float | None = None) -> None:
        await super().pause(delay)
        await settled(self.app)


async def settled(app: App[int]) -> None:
    """Until every message is handled and what it changed is drawn."""
    quiet, end = 0, time.monotonic() + PATIENCE_S
    while quiet < TURNS and app.is_running and not app._exception_event.is_set():
        busy = is_busy(app)
        quiet = 0 if busy else quiet + 1
        assert time.monotonic() < end, "the app does not come to rest"
        await asyncio.sleep(FRAME_S if busy else 0)


def is_busy(app: App[int]) -> bool:
    """Whether a message waits for a widget, or something to be drawn; Textual has no public word for it."""
    screen = app.screen
    if screen._dirty_widgets or screen._callbacks or screen._layout_required or screen._scroll_required:
        return True
    if isinstance(app, AotlensApp) and not app.workbench.is_loaded:
        return True
    pumps = (app, *screen.walk_children(with_self=True))
    return any(pump.message_queue_size or pump._next_callbacks for pump in pumps)


async def settle(pilot: Pilot[int]) -> None:
    """Until posted messages are handled and what they changed is drawn."""
    await settled(pilot.app)


def right_title(app: AotlensApp) -> str:
    """Return the right half of the title: the state of the trace."""
    return "".join(part.text for part in app.workbench.query_one("#title").right)  # type: ignore[attr-defined]


def shown_pane(app: AotlensApp) -> str:
    """Return the name of the open tab, or of what is shown instead of it."""
    return str(app.workbench.query_one("#results").current)  # type: ignore[attr-defined]


RAISED = Failure(
    "user",
    "ValueError: heads must divide width (model.py:20)",
    'Traceback (most recent call last):\n  File "model.py", line 20, in forward\nValueError: heads',
    str(MODEL),
    20,
)
"""A script that raises in the line 20 of the sample model."""
