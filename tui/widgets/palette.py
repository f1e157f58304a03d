"""True colours in terminals that have 256: each becomes the entry of the palette that looks most alike.

Rich maps a colour by rounding each channel, so dark grey-blue backgrounds become black or teal. Here the
distance is measured in Oklab (Björn Ottosson, 2020), where equal steps look equal.

Invariant: only entries 16 to 255 are used, since terminals let users change the first 16.
"""

from collections.abc import Sequence
from functools import lru_cache

from rich.color import Color, ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color as TextualColor
from textual.filter import LineFilter

CUBE_STEPS = (0, 95, 135, 175, 215, 255)
FIRST_GREY = 232

Triplet = tuple[int, int, int]
Lab = tuple[float, float, float]


def palette() -> tuple[Triplet, ...]:
    """Return the colours of entries 16 to 255: a cube of 216, and 24 greys."""
    cube = ((red, green, blue) for red in CUBE_STEPS for green in CUBE_STEPS for blue in CUBE_STEPS)
    greys = ((level, level, level) for level in range(8, 248, 10))
    return (*cube, *greys)


def oklab(triplet: Triplet) -> Lab:
    """Return lightness and the two colour axes of an sRGB colour."""
    red, green, blue = (_linear(channel / 255) for channel in triplet)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    medium = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def distance(first: Lab, second: Lab) -> float:
    return sum((a - b) ** 2 for a, b in zip(first, second, strict=True))


@lru_cache(maxsize=1)
def _labs() -> tuple[Lab, ...]:
    return tuple(map(oklab, palette()))


@lru_cache(maxsize=4096)
def nearest(triplet: Triplet) -> int:
    """Return the number of the entry that looks most alike."""
    wanted = oklab(triplet)
    return 16 + min(range(len(_labs())), key=lambda index: distance(_labs()[index], wanted))


@lru_cache(maxsize=4096)
def in_palette(style: Style) -> Style:
    """Return the style with its true colours replaced."""
    return style + Style(color=_entry(style.color), bgcolor=_entry(style.bgcolor))


def _entry(color: Color | None) -> Color | None:
    if color is None or color.type != ColorType.TRUECOLOR or color.triplet is None:
        return None
    return Color.from_ansi(nearest(tuple(color.triplet)))


class Palette(LineFilter):
    """Replaces true colours in everything that is drawn."""

    def apply(self, segments: list[Segment], background: TextualColor) -> list[Segment]:
        return [
            Segment(segment.text, in_palette(segment.style), segment.control) if segment.style else segment
            for segment in segments
        ]


def needs_palette(color_system: str | None) -> bool:
    """Return True for a terminal with exactly 256 colours, as Rich names its colour system."""
    return color_system == "256"


__all__: Sequence[str] = ["Palette", "in_palette", "nearest", "needs_palette", "oklab", "palette"]
