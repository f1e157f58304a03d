"""Run a script with edited copies of its files in place of those on disk.

Invariant: no file is written; imports and tracebacks see the edited text.
"""

import importlib.machinery
import linecache
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CodeType

from aotlens.session.script.source import Script, load_script

__all__ = ["importing_edited", "load_edited"]


def load_edited(path: str, texts: Mapping[str, str]) -> Script:
    """Read a script, or take its edited text.  Raises as `load_script`."""
    loaded = load_script(path)
    text = _by_absolute_path(texts).get(os.path.abspath(path))
    if text is None:
        return loaded
    _quote(path, text)
    return Script(path, text)


@contextmanager
def importing_edited(texts: Mapping[str, str]) -> Iterator[None]:
    """Run the edited text for imports of these files within the block."""
    edited = _by_absolute_path(texts)
    loader = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        text = edited.get(os.path.abspath(self.path))
        if text is None:
            return original(self, fullname)
        _quote(self.path, text)
        return compile(text, self.path, "exec", dont_inherit=True)

    loader.get_code = get_code  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        loader.get_code = original  # type: ignore[method-assign]


def _by_absolute_path(texts: Mapping[str, str]) -> dict[str, str]:
    return {os.path.abspath(file): text for file, text in texts.items()}


def _quote(file: str, text: str) -> None:
    """Make tracebacks and Dynamo's lines quote the edited text."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
