"""Fixes for writes in place: the text that each gives, and where none is offered."""

from pathlib import Path

import pytest

from aotlens.diagnostics.inplace_edit import bind_new_value, write_to_clone, write_under_no_grad
from aotlens.model.report import Fix, Site, Span


def written(folder: Path, text: str) -> Path:
    file = folder / "model.py"
    file.write_text(text, encoding="utf-8")
    return file


def site(file: Path, expression: str) -> Site:
    """The expression where it stands first."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if expression in line:
            col = len(line[: line.index(expression)].encode())
            return Site(
                Span(str(file), number, col, number, col + len(expression.encode())), expression, None
            )
    raise AssertionError(f"no {expression!r} in {file}")


def applied(fix: Fix | None, file: Path) -> str | None:
    """The text after the fix; None for none."""
    if fix is None:
        return None
    lines = file.read_bytes().decode().split("\n")
    for edit in sorted(fix.edits, key=lambda one: (one.span.line, one.span.col), reverse=True):
        span = edit.span
        head = lines[span.line - 1].encode()[: span.col].decode()
        tail = lines[span.end_line - 1].encode()[span.end_col :].decode()
        lines[span.line - 1 : span.end_line] = (head + edit.text + tail).split("\n")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("before", "expression", "after"),
    [
        (
            'def f(x, y):\n    """漢."""\n    z = y + 1\n    x.mul_(2)\n    return x\n',
            "x.mul_(2)",
            'def f(x, y):\n    """漢."""\n    z = y + 1\n    x = x.clone()\n    x.mul_(2)\n    return x\n',
        ),
        (
            "class M:\n    def f(self, x):\n        v = x[0]\n        if v:\n            x += 1\n",
            "x += 1",
            (
                "class M:\n    def f(self, x):\n        x = x.clone()\n        v = x[0]\n"
                "        if v:\n            x += 1\n"
            ),
        ),
        ("def f(x): x.add_(1)\n", "x.add_(1)", None),
        ("def f(x):\n    def g(y):\n        y.add_(1)\n    g(x)\n", "y.add_(1)", None),
    ],
)
def test_a_write_goes_to_a_copy(tmp_path: Path, before: str, expression: str, after: str | None) -> None:
    file = written(tmp_path, before)
    assert applied(write_to_clone(site(file, expression), "x"), file) == after


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("x.mul_(0.9)", "x = x.mul(0.9)"),
        ("x.add_(y, alpha=2)", "x = x.add(y, alpha=2)"),
        ("x.t_()", "x = x.t()"),
        ("x += y * 2", "x = x + (y * 2)"),
        ("x @= y", "x = x @ y"),
        ("x.copy_(y)", None),
        ("x.mul_(2).add_(1)", None),
        ("x[0] += 1", None),
    ],
)
def test_the_new_value_is_bound(tmp_path: Path, line: str, after: str | None) -> None:
    text = "def f(x, y):\n    {}\n    return x\n"
    file = written(tmp_path, text.format(line))
    expected = None if after is None else text.format(after)
    assert applied(bind_new_value(site(file, line), "x"), file) == expected


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    v = x[0]\n    x.add_(1)\n    return v\n",
        "def f(x, seen):\n    for _ in range(2):\n        x.add_(1)\n        seen.append(x)\n    return x\n",
        "def f(x):\n    return x.add_(1)\n",
    ],
    ids=["a view was taken before", "in a loop", "its value is used"],
)
def test_no_new_value_where_another_name_may_hold_the_old_one(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, text)
    assert bind_new_value(site(file, "x.add_(1)"), "x") is None


def test_statements_are_put_under_no_grad(tmp_path: Path) -> None:
    text = "import torch\n\n\nclass M:\n    def forward(self, x):\n        {}\n        return x\n"
    file = written(tmp_path, text.format("self.ema.mul_(0.9).add_(  # 漢\n            x)"))
    under = "with torch.no_grad():\n            self.ema.mul_(0.9).add_(  # 漢\n                x)"
    assert applied(write_under_no_grad([site(file, "self.ema.mul_(0.9)")]), file) == text.format(under)


def test_no_grad_needs_torch_and_lines_of_its_own(tmp_path: Path) -> None:
    for text in ("def f(x):\n    x.add_(1)\n", "import torch\ndef f(x):\n    x.add_(1); x.mul_(2)\n"):
        file = written(tmp_path, text)
        assert write_under_no_grad([site(file, "x.add_(1)")]) is None
