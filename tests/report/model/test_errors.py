"""Errors carry their exit code, kind and place, and their message stands alone."""

import pytest

from aotlens import errors
from aotlens.errors import AotlensError, MismatchError, TargetError, UnsupportedError
from aotlens.model.spans import shown_path
from tests.report.sample import MODEL, span


def test_public_names_are_exactly_the_exceptions() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert sorted(defined) == errors.__all__


def test_tree_in_the_docstring_is_the_tree() -> None:
    lines = [line.strip("│├└─ ") for line in (errors.__doc__ or "").splitlines()]
    drawn = {line.split()[0]: line.split() for line in lines if line.split(" ")[0] in errors.__all__}
    assert set(drawn) == set(errors.__all__)
    for name, words in drawn.items():
        if "exit" in words:
            assert int(words[words.index("exit") + 1]) == getattr(errors, name).exit_code


@pytest.mark.parametrize(
    ("name", "exit_code", "kind"),
    [
        ("UserError", 2, "user"),
        ("TargetError", 2, "no-target"),
        ("ExampleError", 2, "bad-example"),
        ("BackendError", 2, "user"),
        ("ReportError", 2, "user"),
        ("MismatchError", 1, "internal"),
        ("InternalError", 3, "internal"),
    ],
)
def test_exit_code_and_kind(name: str, exit_code: int, kind: str) -> None:
    error = getattr(errors, name)("what, where, what to do")
    assert isinstance(error, AotlensError)
    assert (error.exit_code, error.kind, error.span, str(error)) == (
        exit_code,
        kind,
        None,
        "what, where, what to do",
    )


def test_kind_may_be_given() -> None:
    assert TargetError("no file model.py", kind="no-file").kind == "no-file"


def test_unsupported_names_case_place_text_and_way_out() -> None:
    place = span("cache.mul_(0.9)")
    error = UnsupportedError("in-place change of two overlapping views", place, "clone one of them first")
    assert str(error) == (
        "not supported: in-place change of two overlapping views, at"
        f" {shown_path(str(MODEL))}:{place.line}:9: `cache.mul_(0.9)`; clone one of them first"
    )
    assert (error.exit_code, error.kind, error.span) == (2, "unsupported", place)


def test_unsupported_columns_are_bytes() -> None:
    """The line has an emoji before the expression; the text is cut by UTF-8 columns."""
    error = UnsupportedError("a view", span("x + self.down(gated)"))
    assert str(error).endswith(": `x + self.down(gated)`")


def test_unsupported_without_place() -> None:
    assert str(UnsupportedError("a nested tensor")) == "not supported: a nested tensor"


def test_mismatch_is_no_user_error() -> None:
    assert not isinstance(MismatchError("x"), errors.UserError)
