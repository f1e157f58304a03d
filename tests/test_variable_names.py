"""Variables are named after their type or role: the names that say nothing stay out of the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SAYS_NOTHING = frozenset(
    {"at", "found", "given", "kept", "one", "place", "said", "taken", "there", "told", "twin"}
)


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each variable and parameter of the source, with its line, but no fields of records."""
    fields = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) if id(node) not in fields:
                yield name, node.lineno
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name, node.lineno


def test_bound_names_are_variables_and_parameters_but_no_fields() -> None:
    source = """
class Row:
    at: int

def look(given, *, one=1):
    kept = [found for found in given]
    try:
        with open(kept) as place: ...
    except OSError as said: ...
    match one:
        case [told, *taken]: ...
    return lambda twin: there.at
"""
    names = {name for name, _ in bound_names(ast.parse(source))}
    assert names == SAYS_NOTHING - {"at", "there"}


@pytest.mark.rotates
def test_no_variable_has_a_name_that_says_nothing() -> None:
    files = [file for folder in ("aotlens", "tui", "lsp_server") for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 300
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: `{name}`"
        for file in files
        for name, line in bound_names(ast.parse(file.read_text(encoding="utf-8")))
        if name in SAYS_NOTHING
    ]
    assert not wrong, "name these variables after their type or role:\n" + "\n".join(wrong)
