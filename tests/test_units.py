"""Numbers get their units, signs and digits in `aotlens/view/` alone, for every front end.

Invariant: `view/quantities.py` (and `model/units.py` below it, for comments of generated modules) decides the
digits, the unit, the sign and the space between them; all others pass numbers.
"""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.import_graph import modules

REPORT = (
    "model",
    "build",
    "diagnostics",
    "compare",
    "render",
    "fit",
    "check",
    "cli",
    "session",
    "mcp",
    "trace",
)
SCOPE = ("lsp_server", "tui", *(f"aotlens.{package}" for package in REPORT))
"""Packages that pass numbers to `aotlens.view`."""
EXEMPT = frozenset({"aotlens.model.units"})

UNITS = ("B", "[KMGT]i?B", "bytes?", "[µumn]s", "s", "milliseconds?", "seconds?", "[kMGTP]?FLOPS?", "%")
UNIT_AFTER = re.compile(rf"[ \u00a0]?(?:{'|'.join(UNITS)})(?![\w(])")
NUMBER_FORMAT = re.compile(r"\d*,$|\.\d*[efg%]$|%$")
PERCENT_FORMAT = re.compile(r"%\.?\d*[dfg]")
SIGNS = frozenset("+-−")


def unit_formatting(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the source of each expression that gives a number a unit, a sign or digits."""
    for node in ast.walk(tree):
        if (
            (isinstance(node, ast.JoinedStr) and _formats_number(node))
            or (isinstance(node, ast.IfExp) and _is_sign(node.body) and _is_sign(node.orelse))
            or (isinstance(node, ast.BinOp) and PERCENT_FORMAT.search(_text(node.left)))
        ):
            yield node.lineno, ast.unparse(node)


def _formats_number(node: ast.JoinedStr) -> bool:
    """Return True for `{value:.1f}`, `{value} MiB`, `×{count}` and `{count} × …`."""
    specs = [value.format_spec for value in node.values if isinstance(value, ast.FormattedValue)]
    texts = ["".join(map(_text, spec.values)) for spec in specs if isinstance(spec, ast.JoinedStr)]
    return any(map(NUMBER_FORMAT.search, texts)) or any(
        UNIT_AFTER.match(_text(after)) or _text(before).endswith("×") or _text(after).lstrip().startswith("×")
        for before, after in pairwise(node.values)
    )


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_sign(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in {"", *SIGNS}


def test_numbers_get_their_units_in_view_alone() -> None:
    found = [
        f"{module.location(line)} formats {source}"
        for module in modules().values()
        if f"{module.name}.".startswith(tuple(f"{package}." for package in SCOPE))
        and module.name not in EXEMPT
        for line, source in unit_formatting(module.tree)
    ]
    assert not found, "\n".join(["formatted outside aotlens/view", *found])


@pytest.mark.parametrize(
    "source",
    [
        'f"{size / 2**20:.1f} MiB"',
        'f"{size} MiB"',
        'f"{elapsed} ms"',
        'f"{elapsed:.2f} µs later"',
        'f"in {elapsed}s"',
        'f"{share:.0%}"',
        'f"{share} %"',
        'f"{number:,} B"',
        'f"{number:.1f}"',
        'f"×{count}"',
        'f"{count} × {size}"',
        "'+' if change > 0 else '−'",
        "'%.1f ms' % elapsed",
    ],
)
def test_formatting_is_found(source: str) -> None:
    assert [text for _, text in unit_formatting(ast.parse(source))]


@pytest.mark.parametrize(
    "source",
    [
        'f"{human_bytes(size)} saved"',
        'f"{count} backward nodes"',
        'f"{size:>11} "',
        'f"{name}Byte"',
        "'a' if change else ''",
        'f"{path}:{line}"',
    ],
)
def test_plain_text_is_not(source: str) -> None:
    assert not list(unit_formatting(ast.parse(source)))
