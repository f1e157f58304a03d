"""Write docs/architecture/modules.md: the modules of each package without a page of its own.

Each row is the first sentence of the module itself.

python -m scripts.docs.modules
"""

import ast
from collections.abc import Iterator
from pathlib import Path

PAGE = Path("docs/architecture/modules.md")
PACKAGES = (
    *("frontends", "eager", "compile_cache", "unsupported", "dynamo", "verify"),
    *("fit", "fixes", "forecast", "gpu_emulation", "check", "mcp"),
)
INTRODUCTION = """# Modules of the other packages

What each module says of itself in its first sentence; [packages](packages.md) says how they work together.
`python -m scripts.docs.modules` makes the page.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for package in PACKAGES:
        parts += [f"## `aotlens/{package}/`\n", "| file | contains |", "|---|---|", *_rows(package), ""]
    return "\n".join(parts)


def _rows(package: str) -> Iterator[str]:
    folder = Path("aotlens", package)
    for path in sorted(folder.rglob("*.py")):
        if not path.stem.startswith("__"):
            yield f"| `{path.relative_to(folder)}` | {_first_sentence(path)} |"


def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.partition(".  ")[0].replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
