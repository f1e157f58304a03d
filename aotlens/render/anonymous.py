"""Removes the names of the user's code and the paths of their machine from texts and reports.

Invariant: one name has one substitute in all texts, so that a report still matches its program; names that
the caller declares public (torch's, Python's) stay.
"""

import ast
import builtins
import io
import keyword
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from aotlens.model import report as records
from aotlens.model.codec import decode, encode
from aotlens.model.report import Report

__all__ = ["Anonymiser", "names_in"]

PATH = re.compile(r"(?<![\w<>/.~])(?:~|[A-Za-z]:)?(?:[\\/][\w.+@-]+){2,}")
"""An absolute path of two parts or more, anywhere in a text."""
FOLDERS = re.compile(r"(?:~|[A-Za-z]:)?(?:[\w.+@-]*[\\/])+(file\d+\.py)\b")
"""The folders before a file whose name is already replaced."""
WORD = re.compile(r"[^\W\d]\w*")
WORD_OR_OPERATOR = re.compile(r"(?<![\w.])(?:aten|prims|torch|triton)(?:\.\w+)+|[^\W\d]\w*")
PYTHON = frozenset(
    (*dir(builtins), *keyword.kwlist, *keyword.softkwlist, *sys.stdlib_module_names, "self", "cls", "none")
)
PACKAGES = ("site-packages", "dist-packages")


class Anonymiser:
    """Substitutes for names and paths; one instance uses the same ones in all texts."""

    def __init__(
        self, sources: Mapping[str, str], public: Iterable[str], private: Mapping[str, str] | None = None
    ) -> None:
        """`sources` are the user's files by their paths; `private` are further texts with substitutes."""
        self._public = PYTHON | _report_words() | frozenset(public)
        self._names: dict[str, str] = {}
        for source in sources.values():
            for name in names_in(source):
                if self._is_private(name):
                    self._names.setdefault(name, f"name{len(self._names) + 1}")
        self._replace_files = _replacing(_file_names(sources))
        prose = {text: "…" for source in sources.values() for text in _prose_in(source)}
        self._replace_texts = _replacing(prose | dict(private or {}), r"(?<!\w){}(?!\w)")

    def text(self, text: str) -> str:
        """Return a message, a traceback or a piece of code with substitutes."""
        shown = FOLDERS.sub(r"\1", self._replace_texts(self._replace_files(text)))
        return WORD_OR_OPERATOR.sub(self._renamed, PATH.sub(_shortened, shown))

    def program(self, source: str) -> str:
        """Return a Python file with substitutes, without comments, and with `""` for every string of several
        words."""
        lines = source.splitlines(keepends=True)
        for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
            if token.type == tokenize.COMMENT:
                _cut(lines, token, "")
            elif token.type == tokenize.STRING and len(WORD.findall(token.string)) > 1:
                _cut(lines, token, '""')
        return self.text("".join(lines))

    def report(self, report: Report) -> Report:
        """Return the same report about code of other names; the schema's words stay."""
        fixed = _literals()
        data: Any = _mapped(encode(report), lambda text: text if text in fixed else self.text(text))
        return decode(data)

    def _is_private(self, name: str) -> bool:
        return name not in self._public and not (name.startswith("__") and name.endswith("__"))

    def _renamed(self, match: re.Match[str]) -> str:
        """Return a name's substitute; for a word made of names (`tangent_hidden`), those of its parts."""
        word = match.group()
        if word in self._names:
            return self._names[word]
        if "." in word or not self._is_private(word):
            return word
        return "_".join(self._names.get(part, part) for part in word.split("_"))


def _file_names(sources: Iterable[str]) -> dict[str, str]:
    """Return each file as messages name it: by its path, absolute or not, and by its name."""
    names: dict[str, str] = {}
    for number, path in enumerate(sources, start=1):
        file = Path(path)
        names |= dict.fromkeys((path, str(file.resolve()), file.name), f"file{number}.py")
    return names


def _cut(lines: list[str], token: tokenize.TokenInfo, substitute: str) -> None:
    """Replace a token in the lines of its file; the tokens after it are already replaced."""
    (row, col), (end_row, end_col) = token.start, token.end
    tail = lines[end_row - 1][end_col:]
    lines[row - 1 : end_row] = [lines[row - 1][:col] + substitute + tail]


def names_in(source: str) -> Iterator[str]:
    """Yield the identifiers of a file, and the words of its strings; none where it does not tokenise."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.NAME:
                yield token.string
            elif token.type == tokenize.STRING and len(words := WORD.findall(token.string)) <= 2:
                yield from words  # a key or an attribute's name; prose counts only as a whole
    except (tokenize.TokenError, SyntaxError):
        return


def _prose_in(source: str) -> Iterator[str]:
    """Lines of several words in the strings of a file: they come back in tracebacks and in quoted lines."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # its message quotes one line, whose names are replaced
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (line.strip() for line in node.value.splitlines() if len(WORD.findall(line)) > 1)


def _replacing(substitutes: Mapping[str, str], pattern: str = "{}") -> Callable[[str], str]:
    """Return a function that replaces every key by its value, the longest first, where `pattern` matches."""
    if not substitutes:
        return lambda text: text
    longest_first = sorted(filter(None, substitutes), key=len, reverse=True)
    either = re.compile(pattern.format(f"(?:{'|'.join(map(re.escape, longest_first))})"))
    return lambda text: either.sub(lambda match: substitutes[match.group()], text)


def _shortened(path: re.Match[str]) -> str:
    """Return the part of a path that is the same on every machine: for an installed file, its path there."""
    text = path.group().replace("\\", "/")
    for folder in PACKAGES:
        _, separator, rest = text.partition(f"/{folder}/")
        if separator:
            return f"<{folder}>/{rest}"
    return "<path>"


def _mapped(data: Any, change: Callable[[str], str]) -> Any:
    """JSON data with every string changed; keys stay."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, list):
        return [_mapped(value, change) for value in data]
    if isinstance(data, dict):
        return {key: _mapped(value, change) for key, value in data.items()}
    return data


def _literals() -> frozenset[str]:
    """Return the words that the schema allows in fields of a fixed vocabulary."""
    words: set[str] = {records.SCHEMA}
    for name in records.__all__:
        value = getattr(records, name)
        if get_origin(value) is Literal:
            words.update(get_args(value))
        elif isinstance(value, type):
            for hint in get_type_hints(value).values():
                words.update(_literal_words(hint))
    return frozenset(words)


def _literal_words(hint: Any) -> Iterator[str]:
    if get_origin(hint) is Literal:
        yield from (word for word in get_args(hint) if isinstance(word, str))
        return
    for inner in get_args(hint):
        yield from _literal_words(inner)


def _report_words() -> frozenset[str]:
    """Return single words of that vocabulary, which occur in reports of any program."""
    return frozenset(word for word in _literals() if word.isidentifier())
