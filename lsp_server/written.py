"""Texts as read-only files, for clients that open only files, in a folder of this server.

Invariant: the folder is made when the first text is written, and is removed with the server.
"""

import shutil
import tempfile
from pathlib import Path

from aotlens.diagnostics import rules
from lsp_server.translate.pages import Page
from lsp_server.views import real_path

RULES = Path(__file__).parents[1] / "docs" / "rules"
"""The pages of the rules in a checkout; an installed package has none."""


class WrittenPages:
    """The files of one server."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._pages: dict[str, Page] = {}
        self._texts: dict[str, str] = {}
        """The content of each file, by name."""
        self._rules: dict[str, str] = {}

    def page(self, page: Page, text: str) -> str:
        """Return the address of a file with the text of a page."""
        name = f"{Path(page.script).stem}/{page.qualname.replace('/', '_')}/{page.file_name}"
        address = self._write(name, text)
        self._pages[address] = page
        return address

    def page_at(self, address: str) -> Page | None:
        """Return the page that was written to a file."""
        return self._pages.get(address)

    def rule(self, code: str) -> str:
        """Return the address of a rule's page; UserError for an unknown code."""
        code = code.upper()
        if code not in self._rules:
            text = rules.page(rules.rule(code))
            page = RULES / f"{code}.md"
            self._rules[code] = page.as_uri() if page.is_file() else self._write(f"rules/{code}.md", text)
        return self._rules[code]

    def report(self, script: str, name: str, text: str) -> str:
        """Return the address of a report for the terminal app."""
        return self._write(f"{Path(script).stem}/{name.replace('/', '_')}/report.json", text)

    def remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, name: str, text: str) -> str:
        if self._folder is None:
            self._folder = real_path(tempfile.mkdtemp(prefix="aotlens-"))
        file = Path(self._folder, name)
        if self._texts.get(name) == text:
            return file.as_uri()
        self._texts[name] = text
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o444)
        return file.as_uri()
