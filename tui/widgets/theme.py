"""The two themes, and the look of each kind of text in any theme.

There are no component classes: Textual would apply the style sheet to each of them, for every widget,
whenever the focus moves, which took most of the time from a key to its paint.
"""

from dataclasses import dataclass
from functools import lru_cache

from rich.style import Style
from textual.color import Color
from textual.theme import Theme
from textual.widget import Widget

DARK = Theme(
    name="aotlens-dark",
    primary="#6CB6FF",
    secondary="#B39DFF",
    accent="#FF8A5B",
    warning="#F2C14E",
    error="#FF6B7A",
    success="#7FD1A0",
    foreground="#D8DEE9",
    background="#12151B",
    surface="#171B22",
    panel="#2A313C",
    dark=True,
    variables={"footer-key-foreground": "#FF8A5B", "block-cursor-text-style": "none"},
)
LIGHT = Theme(
    name="aotlens-light",
    primary="#0B62B8",
    secondary="#6B3FC9",
    accent="#C9431D",
    warning="#9A6400",
    error="#C0263A",
    success="#1E7B45",
    foreground="#20262E",
    background="#FBFBF9",
    surface="#F4F3EF",
    panel="#D9D7CF",
    dark=False,
    variables={"footer-key-foreground": "#C9431D"},
)


@dataclass(frozen=True, slots=True)
class Look:
    """The look of one kind of text."""

    colour: str = ""
    """A variable of the theme; empty inherits the colour."""
    back: str = ""
    """A variable of the theme for the background, with its share: `primary 30%`."""
    bold: bool = False
    underline: bool = False
    italic: bool = False


LOOKS = {
    # Looks of the parts of a row or line; the names are the roles of `aotlens.view.tabs`.
    "role--title": Look("foreground", bold=True),
    "role--heading": Look("primary", bold=True),
    "role--dim": Look("text-muted"),
    "role--name": Look("foreground"),
    "role--op": Look("text-secondary"),
    "role--input": Look("text-muted", italic=True),
    "role--tensor": Look("text-success"),
    "role--place": Look("text-primary"),
    "role--code": Look("text-accent"),
    "role--accent": Look("accent", bold=True),
    "role--ok": Look("text-success"),
    "role--saved": Look("text-warning"),
    "role--mutation": Look("text-error"),
    "role--alias": Look("text-secondary"),
    "role--error": Look("text-error", bold=True),
    "role--warning": Look("text-warning", bold=True),
    "role--information": Look("text-primary"),
    "role--hint": Look("text-muted"),
    "role--added": Look("text-success"),
    "role--removed": Look("text-error"),
    # Rows of lists and tables.
    "list--cursor": Look(back="primary 35%", bold=True),
    "list--resting": Look(back="foreground 10%"),
    "list--linked": Look(back="accent 18%"),
    "list--header": Look("text-muted", underline=True),
    "map--cursor": Look(back="primary 35%", bold=True),
    "map--resting": Look(back="foreground 10%"),
    # Source and other texts.
    "syntax--keyword": Look("text-accent"),
    "syntax--string": Look("text-success"),
    "syntax--comment": Look("text-muted", italic=True),
    "syntax--number": Look("text-warning"),
    "syntax--function": Look("text-primary", bold=True),
    "syntax--class": Look("text-primary", bold=True),
    "syntax--builtin": Look("text-secondary"),
    "syntax--decorator": Look("text-secondary", italic=True),
    "code--cursor": Look(back="primary 30%"),
    "code--resting": Look(back="foreground 8%"),
    "code--number": Look("text-disabled"),
    "code--linked": Look(back="accent 30%", bold=True, underline=True),
    "code--related": Look(back="foreground 12%", underline=True),
    "code--block": Look(back="accent 12%"),
    "code--found": Look(back="warning 40%", bold=True),
    "code--saved": Look("text-warning"),
    "code--kernels": Look("text-secondary"),
    "code--mutation": Look("text-error", bold=True),
    "code--alias": Look("text-secondary", bold=True),
    "code--error": Look("text-error", bold=True),
    "code--warning": Look("text-warning", bold=True),
    "code--information": Look("text-primary", bold=True),
    "code--hint": Look("text-muted"),
    "code--added": Look("text-success", bold=True),
    "code--replaced": Look("text-warning", bold=True),
    "code--rewired": Look("accent", bold=True),
    "code--edge": Look("text-disabled"),
    "code--edge-lit": Look("accent", bold=True),
    # One-line bars.
    "choice--current": Look("foreground", "primary 30%", bold=True, underline=True),
    "choice--other": Look("text-muted"),
    "choice--key": Look("accent"),
    "key-bar--key": Look("accent", bold=True),
    "key-bar--label": Look("foreground"),
}
"""Every kind of text: where the difference between two matters, it is never the colour alone."""


def look_style(widget: Widget, name: str) -> Style:
    """Return the look of that name in the theme; transparent colours are blended over the background."""
    look, variables = LOOKS[name], widget.app.theme_variables
    back, _, share = look.back.partition(" ")
    return _style(
        look,
        variables.get(look.colour, ""),
        f"{variables[back]} {share}" if back else "",
        _background_colour(widget),
    )


def _background_colour(widget: Widget) -> Color:
    return widget.background_colors[1]


@lru_cache(maxsize=1024)
def _style(look: Look, colour: str, back: str, ground: Color) -> Style:
    painted = _blended(back, ground) if back else None
    shown = _blended(colour, ground if painted is None else painted) if colour else None
    return Style(
        color=shown.rich_color if shown else None,
        bgcolor=painted.rich_color if painted else None,
        bold=look.bold or None,
        underline=look.underline or None,
        italic=look.italic or None,
    )


def _blended(written: str, ground: Color) -> Color:
    """Return a colour of the theme (`#6CB6FF`, `#6CB6FF 30%`, `auto 60%`) on that background."""
    name, _, share = written.partition(" ")
    alpha = float(share.rstrip("%")) / 100 if share else 1.0
    colour = ground.get_contrast_text(alpha) if name == "auto" else Color.parse(name).multiply_alpha(alpha)
    return ground + colour
