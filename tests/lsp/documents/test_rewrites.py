"""The removal of `no_grad` from a text."""

import pytest

from lsp_server.rewrites import grad_restored
from lsp_server.text.document import Document, TextChange


def rewritten(text: str, line: int) -> str | None:
    """The text after the change that is offered at a line, made as an editor makes it: from the end."""
    document = Document("file:///a.py", text, 1)
    fix = grad_restored(document.lines, "a.py", line)
    if fix is None:
        return None
    for edit in sorted(fix.edits, key=lambda one: (one.span.line, one.span.col), reverse=True):
        span = edit.span
        start, end = (span.line - 1, span.col), (span.end_line - 1, span.end_col)
        document.apply(TextChange(edit.text, start, end), "utf-8")
    return document.text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "with no_grad():\n    # 漢\n    y = x\n\n    s = '''\n  kept\n'''\nreturn y\n",
            "# 漢\ny = x\n\ns = '''\n  kept\n'''\nreturn y\n",
        ),
        ("def f(x):\n    with no_grad(): x.add_(1)\n", "def f(x):\n    x.add_(1)\n"),
        (
            "def f(x):\n    with torch.no_grad(), g() as h:\n        h(x)\n",
            "def f(x):\n    with g() as h:\n        h(x)\n",
        ),
        (
            "def f(x):\n    with g() as h, torch.inference_mode():\n        h(x)\n",
            "def f(x):\n    with g() as h:\n        h(x)\n",
        ),
        ("@a\n@torch.no_grad()\ndef f(x):\n    return x\n", "@a\ndef f(x):\n    return x\n"),
        (
            "if x:\n\twith torch.set_grad_enabled(False):\n\t\ty = 1\n",
            "if x:\n\ty = 1\n",
        ),
    ],
)
def test_no_grad_goes_and_the_rest_stays(before: str, after: str) -> None:
    line = next(n for n, row in enumerate(before.split("\n")) if "grad" in row or "inference" in row)
    assert rewritten(before, line) == after


@pytest.mark.parametrize(
    "text",
    ["with torch.set_grad_enabled(True):\n    y = 1\n", "with torch.no_grad(\n", "no_grad = 1\n", "x = 1\n"],
)
def test_other_lines_have_no_such_change(text: str) -> None:
    assert rewritten(text, 0) is None
