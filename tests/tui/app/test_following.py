"""A report that follows another one: of a log that has grown."""

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from tests.report.sample import sample_report
from tests.tui.driving import drive, screen_text, settle
from tui.app import AotlensApp
from tui.messages import ReportReady


@pytest.mark.rotates
def test_the_target_that_is_shown_stays_and_the_new_ones_are_there() -> None:
    first = sample_report()
    shown = first.targets[0]
    other = replace(shown, name="other", qualname="other")
    before, after = replace(first, targets=(other, shown)), replace(first, targets=(other, other, shown))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        app.target_index = 1
        app.post_message(ReportReady(after))
        await settle(pilot)
        assert app.report is after
        assert app.target is not None
        assert app.target.qualname == shown.qualname
        assert "traced" not in screen_text(app).splitlines()[0]  # nothing was: the log is read

    drive(scenario, AotlensApp("logs", report=before))
