"""The page on `functorch.compile`: its blocks are run in order and print what it shows."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "functorch.md"
BLOCK = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def run_blocks(text: str) -> list[str]:
    """What each block prints."""
    names: dict[str, Any] = {}
    found = []
    for code, _ in BLOCK.findall(text):
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)
        lines = (line.rstrip() for line in printed.getvalue().splitlines())
        found.append("\n".join(lines) + "\n")
    return found


def test_the_page_shows_what_its_blocks_print(request: Any) -> None:
    text = PAGE.read_text()
    printed = run_blocks(text)
    if request.config.getoption("--update-goldens"):
        remaining = iter(printed)
        fill = lambda block: f"```python\n{block[1]}```\n\n```text\n{next(remaining)}```"
        text = BLOCK.sub(fill, text)
        PAGE.write_text(text)
    assert [shown for _, shown in BLOCK.findall(text)] == printed
