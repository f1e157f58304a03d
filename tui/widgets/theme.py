"""The two themes, and how a component class becomes a rich style."""

from rich.style import Style
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


def component_style(widget: Widget, name: str) -> Style:
    """Only what the class itself sets, with transparent colours blended over the widget's background."""
    own = widget.get_component_rich_style(name, partial=True)
    blended = widget.get_component_rich_style(name)
    return own + Style(
        color=blended.color if own.color else None, bgcolor=blended.bgcolor if own.bgcolor else None
    )
