"""Identical layers as one row, unfolded on a key."""

from textual.pilot import Pilot

from tests.tui.driving import drive, rows, table
from tui.app import AotlensApp
from tui.view.rows import Column, LazyRows, Link, Listing, grouped

NAMES = ("a", "h.0.w", "h.1.w", "h.0.b", "h.1.b", "h.2.b")
FOLDED = ["a", "×2 h.0–1.w", "×3 h.0–2.b"]


def layered() -> Listing:
    """Rows of which those that differ only in their layer fold."""
    cells = LazyRows(NAMES, str, lambda text: (text,), str, lambda text: Link())
    groups = grouped(NAMES, str, lambda name: None)
    return Listing((Column("name"),), cells, "", groups, lambda group: (group.label,))


def test_layers_are_one_row_until_the_key_unfolds_them() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        shown = table(app, "saved-table")
        shown.show(layered())
        assert rows(app, "saved-table") == FOLDED
        shown.place_cursor(2)
        await pilot.press("u")
        assert (rows(app, "saved-table"), shown.key) == (list(NAMES), "h.0.b")
        await pilot.press("u")
        assert (rows(app, "saved-table"), shown.key) == (FOLDED, "h.0.b")

    drive(scenario)


def test_what_a_fold_hides_is_found_and_shown() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        shown = table(app, "outputs")  # of a pane that is not open
        shown.show(layered())
        shown.filter("h.1")
        assert rows(app, "outputs") == ["h.1.w", "h.1.b"]
        shown.filter("")
        shown.mark_records((4,))
        assert (rows(app, "outputs"), shown.linked) == (FOLDED, frozenset((2,)))
        assert shown.select("h.2.b")
        assert (len(rows(app, "outputs")), shown.key) == (6, "h.2.b")

    drive(scenario)
