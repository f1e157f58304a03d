"""The coloured runs of a Python text, by pygments."""

from collections.abc import Iterable

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

Run = tuple[int, int, str]
"""First column, end column, kind."""
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


def kind_of(token: _TokenType) -> str:
    """Return the first kind whose token is a prefix: pygments' tokens are tuples of names."""
    return next((kind for parent, kind in TABLE if token[: len(parent)] == parent), "")


def runs(text: str) -> Iterable[Run]:
    """Coloured runs of a text by offset."""
    for offset, token, piece in PythonLexer(stripnl=False, ensurenl=False).get_tokens_unprocessed(text):
        if kind := kind_of(token):
            yield (offset, offset + len(piece), kind)
