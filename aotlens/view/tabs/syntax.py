"""Python's syntax in a handful of kinds, by pygments."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

KINDS = ("keyword", "string", "comment", "number", "function", "class", "builtin", "decorator")
TABLE: tuple[tuple[_TokenType, str], ...] = (
    (Keyword, "keyword"),
    (Operator.Word, "keyword"),
    (Comment, "comment"),
    (String, "string"),
    (Number, "number"),
    (Name.Function, "function"),
    (Name.Class, "class"),
    (Name.Decorator, "decorator"),
    (Name.Builtin, "builtin"),
)
"""The first row whose token contains it wins; other tokens have the text's colour."""

WHOLE = 4000
"""Lines up to which a text is lexed from its start; longer ones are lexed line by line as they are shown,
where a string over several lines loses its colour."""

Run = tuple[int, int, str]
"""First column, end column, kind."""
Colouring = Callable[[int, str], Sequence[Run]]
"""Returns the runs of a 1-based line."""


def plain(number: int, line: str) -> Sequence[Run]:
    """No colours."""
    return ()


def kind_of(token: _TokenType) -> str:
    """Return the first kind whose token is a prefix: pygments' tokens are tuples of names."""
    return next((kind for parent, kind in TABLE if token[: len(parent)] == parent), "")


def runs(text: str) -> Iterable[Run]:
    """Coloured runs of a text by offset."""
    for offset, token, piece in PythonLexer(stripnl=False, ensurenl=False).get_tokens_unprocessed(text):
        if kind := kind_of(token):
            yield (offset, offset + len(piece), kind)


def python(lines: Sequence[str]) -> Colouring:
    """Return the colouring of a Python text."""
    if len(lines) > WHOLE:
        known: dict[int, Sequence[Run]] = {}

        def lazily(number: int, line: str) -> Sequence[Run]:
            if number not in known:
                known[number] = tuple(runs(line))
            return known[number]

        return lazily
    text = Lexed(lines)
    return lambda number, line: text.runs_of(number)


class Lexed:
    """The runs of a text, which is lexed from its start as far as it is shown."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)]
        self._runs = iter(runs("\n".join(lines)))
        self._by_line: dict[int, list[Run]] = {}
        self._reached = 0
        """The line of the last run; those before it have all of theirs."""

    def runs_of(self, number: int) -> Sequence[Run]:
        """Return the runs of a 1-based line."""
        while self._reached <= number and (run := next(self._runs, None)) is not None:
            self._add(*run)
        return self._by_line.get(number, ())

    def _add(self, start: int, end: int, kind: str) -> None:
        """Cut a run at the ends of lines."""
        starts = self._starts
        self._reached = bisect_right(starts, start)
        for number in range(self._reached, bisect_right(starts, end - 1) + 1):
            base, edge = starts[number - 1], starts[number] - 1
            if max(start, base) < min(end, edge):
                self._by_line.setdefault(number, []).append(
                    (max(start, base) - base, min(end, edge) - base, kind)
                )
