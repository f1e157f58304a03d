"""A call wrapped in an activation checkpoint, as an edit of the source.

Invariant: an edit is offered only for a plain call in a statement that runs it once; the text around it stays
unchanged, and `checkpoint` means torch's own.
"""

import ast
import builtins
import linecache
from functools import lru_cache
from typing import Protocol

from aotlens.model.report import Edit, Fix, Span

MODULE = "torch.utils.checkpoint"
OWN_KEYWORDS = frozenset(
    {"use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state"}
)
"""Keywords that `checkpoint` takes for itself."""


class HasSpan(Protocol):
    @property
    def span(self) -> Span: ...


def can_be_checkpointed(span: Span) -> bool:
    """Return True if the span is a call of a function or module that can be passed to `checkpoint`."""
    return _call_at(span) is not None


def checkpointed(advice: HasSpan) -> Fix | None:
    """Return the fix that wraps the call, with the import where it is missing."""
    span = advice.span
    call, tree = _call_at(span), source_tree(span.file)
    if call is None or tree is None:
        return None
    text = "".join(linecache.getlines(span.file))
    callee = ast.get_source_segment(text, call.func)
    inside: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    first, last = min(inside, key=_start), max(inside, key=_start)
    arguments = _segment(text, first, last)
    name, edits = _checkpoint_name(span.file, tree)
    wrapped = Edit(span, f"{name}({callee}, {arguments}, use_reentrant=False)")
    return Fix(f"Recompute `{callee}` in the backward", (wrapped, *edits))


def _start(node: ast.expr | ast.keyword) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _segment(text: str, first: ast.AST, last: ast.AST) -> str:
    """Return the source from the start of one node to the end of another."""
    whole = ast.Constant(None)
    ast.copy_location(whole, first)
    whole.end_lineno = getattr(last, "end_lineno", None)
    whole.end_col_offset = getattr(last, "end_col_offset", None)
    return ast.get_source_segment(text, whole) or ""


@lru_cache(maxsize=8)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):  # the file changed since it ran, or is not Python
        return None


def source_text(file: str) -> str:
    """Return the text of a source file on disk; empty when it cannot be read."""
    linecache.checkcache(file)
    return "".join(linecache.getlines(file))


def source_tree(file: str) -> ast.Module | None:
    """Return the syntax tree of a source file; None when there is none, or it is not Python."""
    text = source_text(file)
    return _parsed(text) if text else None


def _call_at(span: Span) -> ast.Call | None:
    tree = source_tree(span.file)
    if tree is None or span.end_col <= 0:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _covers(node, span) and _is_plain(node):
            return node
    return None


def _covers(node: ast.expr, span: Span) -> bool:
    node_range = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    return node_range == (span.line, span.col, span.end_line, span.end_col)


def _is_plain(call: ast.Call) -> bool:
    """Return True for a call of a name, an attribute or an item, with arguments, other than a checkpoint."""
    names = [keyword.arg for keyword in call.keywords]
    arguments = bool(call.args) and not any(name is None or name in OWN_KEYWORDS for name in names)
    inside = [node for argument in (*call.args, *call.keywords) for node in ast.walk(argument)]
    suspends = any(isinstance(node, (ast.Await, ast.Yield, ast.NamedExpr, ast.YieldFrom)) for node in inside)
    return arguments and not suspends and _is_reference(call.func) and _last_name(call.func) != "checkpoint"


def _is_reference(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name):
            return name not in vars(builtins)
        case ast.Attribute(value=value):
            return _is_reference(value)
        case ast.Subscript(value=value, slice=index):
            return _is_reference(value) and isinstance(index, (ast.Constant, ast.Name))
    return False


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _checkpoint_name(file: str, tree: ast.Module) -> tuple[str, tuple[Edit, ...]]:
    """Return the name of `checkpoint` in the file, and the import that the file lacks."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == MODULE:
            for alias in node.names:
                if alias.name == "checkpoint":
                    return alias.asname or alias.name, ()
        if isinstance(node, ast.ImportFrom) and node.module == "torch.utils":
            for alias in node.names:
                if alias.name == "checkpoint":
                    return f"{alias.asname or alias.name}.checkpoint", ()
        if isinstance(node, ast.Import) and any(a.name == MODULE and not a.asname for a in node.names):
            return f"{MODULE}.checkpoint", ()
    if "checkpoint" in _names(tree):
        return "activation_checkpoint", _import(file, tree, "checkpoint as activation_checkpoint")
    return "checkpoint", _import(file, tree, "checkpoint")


def _names(tree: ast.Module) -> set[str]:
    """Every name that the file binds or reads."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add(other or name.split(".")[0])
    return names


def _import(file: str, tree: ast.Module, what: str) -> tuple[Edit, ...]:
    """Return a line after the last import at the top of the file, or at its start."""
    line = 0
    for position, node in enumerate(tree.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            line = node.end_lineno or line
        elif not (position == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            break
        elif not line:
            line = node.end_lineno or line
    where = Span(file, line + 1, 0, line + 1, 0)
    return (Edit(where, f"from {MODULE} import {what}\n"),)
