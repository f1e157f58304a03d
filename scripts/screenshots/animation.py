"""Makes one animated SVG of several screenshots, shown one after the other: `docs/images/tui.svg`.

`python scripts/screenshots/animation.py` reads what `scripts/screenshots/terminal_app.py` wrote.  Nothing is
fetched when it is shown; fonts are those of the reader.
"""

import re
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
SCREENS = ("overview", "saved", "memory", "kernels")
SECONDS = 3.5
"""Seconds per screen."""
FADE = 4.0
"""The share of a transition, in percent."""

ROOT = re.compile(r"<svg[^>]*viewBox=\"(?P<box>[^\"]+)\"[^>]*>(?P<body>.*)</svg>", re.DOTALL)
FONTS = re.compile(r"@font-face \{.*?\n    \}\n", re.DOTALL)


def animated(screens: dict[str, str]) -> str:
    """Return the screens as groups of one picture; without animation the first one is visible."""
    size, groups, share = "", [], 100 / len(screens)
    for index, (name, text) in enumerate(screens.items()):
        match = ROOT.search(text)
        if match is None:
            raise SystemExit(f"{name}: no svg element with a viewBox")
        size = size or match["box"]
        body = FONTS.sub("", match["body"]).replace("terminal-", f"{name}-")
        delay = f"animation-delay: {index * SECONDS:g}s" if index else ""
        groups.append(f'<g class="screen" style="{delay}">{body}</g>')
    style = (
        f".screen {{ opacity: 0; animation: screens {SECONDS * len(screens):g}s infinite; }}\n"
        f".screen:first-of-type {{ opacity: 1; }}\n"
        f"@keyframes screens {{ 0%, {share:g}% {{ opacity: 1; }} {share + FADE:g}% {{ opacity: 0; }}"
        f" {100 - FADE:g}% {{ opacity: 0; }} 100% {{ opacity: 1; }} }}\n"
        "@media (prefers-reduced-motion) { .screen { animation: none; } }"
    )
    return (
        f'<svg viewBox="{size}" xmlns="http://www.w3.org/2000/svg">\n<style>{style}</style>\n'
        + "\n".join(groups)
        + "\n</svg>\n"
    )


def main() -> None:
    screens = {name: (IMAGES / f"tui-{name}.svg").read_text() for name in SCREENS}
    (IMAGES / "tui.svg").write_text(animated(screens))


if __name__ == "__main__":
    main()
