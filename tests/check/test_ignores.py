"""Which statement an ignore comment covers, and which findings it hides."""

from aotlens.diagnostics.ignores import covers, parse_ignores, unknown_codes, unused
from aotlens.model.report import Diagnostic, Span

SOURCE = """\
def f(x, y):
    x.add_(1)  # aotlens: ignore[AL101, al2]
    y.add_(
        2,  # aotlens: ignore
    )
    # aotlens: ignore[AL301]

    # another comment
    z = x @ y
    return "# aotlens: ignore"
"""


def _finding(code: str, line: int) -> Diagnostic:
    return Diagnostic(code, "warning", "", Span("f.py", line, 4, line, 8))


def test_a_comment_covers_its_statement_or_the_next() -> None:
    ranges = [(ignore.codes, ignore.first, ignore.last) for ignore in parse_ignores(SOURCE, "f.py")]
    assert ranges == [(("AL101", "AL2"), 2, 2), ((), 3, 5), (("AL301",), 9, 9)]


def test_what_is_hidden() -> None:
    first, every, _ = parse_ignores(SOURCE, "f.py")
    assert covers(first, _finding("AL101", 2))
    assert covers(first, _finding("AL203", 2))
    assert not covers(first, _finding("AL102", 2))
    assert not covers(first, _finding("AL101", 3))
    assert covers(every, _finding("AL904", 5))
    assert not covers(every, Diagnostic("AL905", "error", "", None))


def test_the_comment_is_told_where_it_stands() -> None:
    first, *_ = parse_ignores(SOURCE, "f.py")
    diagnostic = unused(first, ["AL101"])
    assert diagnostic.span == Span("f.py", 2, 15, 2, 44)
    assert diagnostic.message == "unused `aotlens: ignore`: no AL101 here; remove it"


def test_another_comment_may_stand_before() -> None:
    (ignore,) = parse_ignores("x = 1  # why  # aotlens: ignore[AL101]\n", "f.py")
    assert (ignore.codes, ignore.span.col) == (("AL101",), 14)


def test_a_code_that_is_none() -> None:
    (ignore,) = parse_ignores("x = 1  # aotlens: ignore[AL109]\n", "f.py")
    (diagnostic,) = unknown_codes(ignore)
    assert diagnostic.message.startswith("`aotlens: ignore[AL109]` names no diagnostic; there is AL105")


def test_a_text_that_does_not_parse_has_none() -> None:
    assert parse_ignores("x = (  # aotlens: ignore\n", "f.py") == ()
