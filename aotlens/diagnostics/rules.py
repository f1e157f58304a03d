"""Finding and printing the rows of the catalogue of diagnostics.

`python -m aotlens.diagnostics.rules docs/rules` writes the published pages; a test checks them.
"""

import difflib
import sys
from pathlib import Path

from aotlens.diagnostics.catalogue import FAMILIES, RULES, Rule
from aotlens.errors import UserError

__all__ = ["FAMILIES", "RULES", "Rule", "index_page", "near_codes", "page", "pages", "rule"]

_MOST_LIKE, _MOST_SHOWN = 12, 3
"""How many codes are compared with an unknown one, and how many are offered."""


def rule(code: str) -> Rule:
    """Return the rule of that code, in any case. Raises UserError that offers the nearest codes."""
    wanted = code.upper()
    for entry in RULES:
        if entry.code == wanted:
            return entry
    raise UserError(f"no rule {code!r}; there is {near_codes(wanted)}")


def near_codes(code: str) -> str:
    """Return similar codes, those of the same family first: `AL301, AL302`; all where none is near."""
    codes = [entry.code for entry in RULES]
    near = difflib.get_close_matches(code.upper(), codes, n=_MOST_LIKE, cutoff=0.5)
    ordered = sorted(near or codes, key=lambda candidate: not candidate.startswith(code.upper()[:3]))
    return ", ".join(ordered[:_MOST_SHOWN] if near else ordered)


def page(entry: Rule) -> str:
    """Return the rule's page as Markdown."""
    parts = [
        f"# {entry.code}: {entry.title}",
        f"{entry.family}. Severity: {entry.severity}.",
        f"## What it means\n\n{entry.meaning}",
        f"## What it costs\n\n{entry.cost}",
        f"## What to do\n\n{entry.advice}",
    ]
    if entry.example:
        parts.append(f"## Example\n\n{_code(entry.example)}")
    if entry.better:
        parts.append(f"Instead:\n\n{_code(entry.better)}")
    return "\n\n".join(parts) + "\n"


def index_page() -> str:
    """Return the list of all rules as Markdown."""
    lines = ["# Diagnostics", "", "`aotlens rule CODE` prints a page in the terminal.", ""]
    for digit, family in FAMILIES.items():
        lines += [f"## AL{digit}: {family}", "", "| code | severity | |", "|---|---|---|"]
        rows = [entry for entry in RULES if entry.code[2] == digit]
        lines += [f"| [{entry.code}]({entry.code}.md) | {entry.severity} | {entry.title} |" for entry in rows]
        lines.append("")
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Every file of `docs/rules/` by its name."""
    return {"README.md": index_page()} | {f"{entry.code}.md": page(entry) for entry in RULES}


def _code(text: str) -> str:
    language = "sh" if text.startswith("$") else "python"
    return f"```{language}\n{text.removeprefix('$ ')}\n```"


if __name__ == "__main__":
    for name, content in pages().items():
        Path(sys.argv[1], name).write_text(content, encoding="utf-8")
