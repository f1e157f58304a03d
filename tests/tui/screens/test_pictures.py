"""Whole screens in their colours, as the SVG that `s` saves.

What is compared is what is drawn: pieces of text with place, colour and weight, and the coloured areas.
Fonts, ids and the order of style rules may differ between versions of the libraries.
"""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from textual.pilot import Pilot

from tests.tui.driving import FRAME_S, NARROW, WIDE, drive, settle
from tui.app import AotlensApp

GOLDENS = Path(__file__).parents[2] / "goldens" / "tui"
SVG = "{http://www.w3.org/2000/svg}"
Piece = tuple[float, float, float, str, str]
"""Top, left, width, text (none for an area), look."""

PICTURES = (
    ("overview-dark", WIDE, ()),
    ("inputs-light", WIDE, ("d", "2", "end")),
    ("saved-narrow", NARROW, ("5",)),
    ("log-narrow", NARROW, ("0",)),
)


def drawn(svg: str) -> list[str]:
    """Each piece with its place, in reading order; how a stretch of one look is cut does not count."""
    root = ElementTree.fromstring(svg)
    styles = dict(style_rules("".join(root.itertext())))
    areas = [
        (number(rect, "y"), number(rect, "x"), number(rect, "width"), "", str(rect.get("fill")))
        for rect in root.iter(f"{SVG}rect")
        if rect.get("shape-rendering")  # an area of cells; the others are the window around
    ]
    texts = [
        (number(text, "y"), number(text, "x"), number(text, "textLength"), "".join(text.itertext()), style)
        for text in root.iter(f"{SVG}text")
        if text.get("clip-path")
        for style in [styles.get(text.get("class", "").rpartition("-")[2], "")]
    ]
    joined = (*stretches(areas), *stretches(texts))
    return [
        f"{y:.0f} {x:.0f} {written.rstrip()!r} {look}" if written else f"{y:.0f} {x:.0f} {width:.0f} {look}"
        for y, x, width, written, look in joined
        if not written or written.strip()
    ]


def stretches(pieces: list[Piece]) -> list[Piece]:
    """Pieces of one look that touch, as one."""
    found: list[Piece] = []
    for y, x, width, written, look in sorted(pieces):
        text = written.replace("\xa0", " ")
        if found and found[-1][0] == y and found[-1][4] == look:
            _, start, length, before, _ = found[-1]
            if abs(start + length - x) < 1:
                found[-1] = (y, start, length + width, before + text, look)
                continue
        found.append((y, x, width, text, look))
    return found


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name, "0"))


def style_rules(text: str) -> Iterator[tuple[str, str]]:
    """What each numbered class stands for."""
    for name, rules in re.findall(r"-(r\d+) \{([^}]*)\}", text):
        kept = [rule.strip() for rule in rules.split(";") if rule.strip()]
        yield name, "; ".join(sorted(kept))


@pytest.mark.rotates
@pytest.mark.parametrize(("name", "size", "keys"), PICTURES, ids=[name for name, _, _ in PICTURES])
def test_the_picture_is_as_kept(
    name: str, size: tuple[int, int], keys: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    shown: list[str] = []

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press(*keys)
        while len(shown) < 2 or drawn(shown[-1]) != drawn(shown[-2]):  # a footer is laid out a frame later
            await settle(pilot)
            await asyncio.sleep(FRAME_S)
            shown.append(app.export_screenshot(title="aotlens"))

    drive(scenario, size=size)
    kept = GOLDENS / f"{name}.svg"
    if request.config.getoption("--update-goldens"):
        kept.write_text(re.sub(r"terminal-\d+", "terminal", shown[-1]), encoding="utf-8")
    assert drawn(kept.read_text(encoding="utf-8")) == drawn(shown[-1])


def test_a_colour_a_place_or_a_word_that_differs_is_seen() -> None:
    kept = (GOLDENS / "log-narrow.svg").read_text(encoding="utf-8")
    assert drawn(kept) == drawn(kept.replace("terminal", "terminal-77"))
    for old, new in (("fill: #", "fill: #0"), ('x="12.2"', 'x="24.4"'), ("Over", "Ever")):
        assert old in kept
        assert drawn(kept) != drawn(kept.replace(old, new))
