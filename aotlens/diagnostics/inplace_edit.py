"""Edits that undo a write in place: onto a copy, as a new value, or outside of autograd.

Invariant: an edit is offered only where its title describes all that it changes; it goes into the function
that takes the argument, and never mistakes one name for another.
"""

import ast
from collections.abc import Iterable, Iterator

from aotlens.diagnostics.checkpoint_edit import source_text, source_tree
from aotlens.model.report import Edit, Fix, Site, Span

Function = ast.FunctionDef | ast.AsyncFunctionDef

NO_NEW_VALUE = frozenset(
    (
        *("copy_", "fill_", "zero_", "set_", "resize_", "resize_as_", "requires_grad_", "detach_", "rename_"),
        *("share_memory_", "apply_", "map_", "random_", "normal_", "uniform_", "bernoulli_", "exponential_"),
        *("geometric_", "cauchy_", "log_normal_"),
    )
)
"""Methods that change a tensor and have no form that gives the new value as another tensor."""

OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}


def write_to_clone(site: Site, name: str) -> Fix | None:
    """Return `x = x.clone()` before the first line that reads the argument, so that every view is a view of
    the copy."""
    function = _function_of(site.span, name)
    if function is None:
        return None
    first = next((node for node in function.body if any(_mentions(node, name))), None)
    indent = _indent(site.span.file, first) if first is not None else None
    if first is None or indent is None:
        return None
    line = min([first.lineno, *(node.lineno for node in getattr(first, "decorator_list", ()))])
    where = Span(site.span.file, line, 0, line, 0)
    edit = Edit(where, f"{indent}{name} = {name}.clone()\n")
    return Fix(f"Write to a copy of `{name}`, so that the caller's tensor does not change", (edit,))


def bind_new_value(site: Site, name: str) -> Fix | None:
    """Return `x = x.mul(2)` for `x.mul_(2)`, where no view of the argument can exist."""
    function, file = _function_of(site.span, name), site.span.file
    statement = _statement_at(function, site.span) if function is not None else None
    if function is None or statement is None or _is_repeated(function, statement):
        return None
    if any(_start(mention) < _start(statement) for mention in _mentions_in(function.body, name)):
        return None
    text = _new_value(statement, name, source_text(file))
    if text is None:
        return None
    return Fix("Bind the new value", (Edit(_span(file, statement), text),))


def write_under_no_grad(sites: Iterable[Site]) -> Fix | None:
    """`with torch.no_grad():` around each statement that writes."""
    edits: dict[Span, Edit] = {}
    for site in sites:
        tree, file = source_tree(site.span.file), site.span.file
        statement = _simple_statement(tree, site.span) if tree is not None else None
        indent = _indent(file, statement) if statement is not None else None
        if tree is None or statement is None or indent is None or not _imports_torch(tree):
            return None
        last = statement.end_lineno or statement.lineno
        lines = source_text(file).splitlines()[statement.lineno - 1 : last]
        if len(lines) > 1 and any(
            isinstance(expression, ast.Constant | ast.JoinedStr) for expression in _tall(statement)
        ):
            return None  # the inside of a string would move
        inner = [f"    {line}" if line.strip() else line for line in lines]
        rows = [f"{indent}with torch.no_grad():", *inner]
        span = Span(file, statement.lineno, 0, last, len(lines[-1].encode()))
        edits[span] = Edit(span, "\n".join(rows))
    return Fix("Write under torch.no_grad()", tuple(edits.values())) if edits else None


def _function_of(span: Span, name: str) -> Function | None:
    """Return the innermost function around a span, if `name` is a parameter of it."""
    tree = source_tree(span.file)
    functions = (node for node in ast.walk(tree) if isinstance(node, Function)) if tree else ()
    around = [node for node in functions if _holds(node, span)]
    inner = max(around, key=lambda node: node.lineno, default=None)
    if inner is None:
        return None
    every = [*inner.args.posonlyargs, *inner.args.args, *inner.args.kwonlyargs]
    return inner if name in [node.arg for node in every] else None


def _holds(node: ast.stmt, span: Span) -> bool:
    first, last = _start(node), (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return first <= (span.line, span.col) and (span.end_line, span.end_col) <= last


def _mentions(node: ast.AST, name: str) -> Iterator[ast.Name]:
    return (
        name_node for name_node in ast.walk(node) if isinstance(name_node, ast.Name) and name_node.id == name
    )


def _mentions_in(body: list[ast.stmt], name: str) -> Iterator[ast.Name]:
    return (mention for statement in body for mention in _mentions(statement, name))


def _start(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _simple_statement(tree: ast.AST, span: Span) -> ast.stmt | None:
    """Return the statement without a body that contains a span."""
    simple = ast.Expr | ast.Assign | ast.AugAssign
    return next((node for node in ast.walk(tree) if isinstance(node, simple) and _holds(node, span)), None)


def _statement_at(function: Function, span: Span) -> ast.stmt | None:
    """Return the statement that is exactly the span."""
    statement = _simple_statement(function, span)
    return statement if statement is not None and _span(span.file, statement) == span else None


def _is_repeated(function: Function, statement: ast.stmt) -> bool:
    loops = (node for node in ast.walk(function) if isinstance(node, ast.For | ast.AsyncFor | ast.While))
    return any(statement is node for loop in loops for node in ast.walk(loop))


def _new_value(statement: ast.stmt, name: str, text: str) -> str | None:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=method)) as call):
            written = ast.get_source_segment(text, call)
            if owner != name or not method.endswith("_") or method in NO_NEW_VALUE or written is None:
                return None
            return f"{name} = {written.replace(f'.{method}', f'.{method[:-1]}', 1)}"
        case ast.AugAssign(target=ast.Name(id=owner), op=operator, value=value):
            right, sign = ast.get_source_segment(text, value), OPERATORS.get(type(operator))
            if owner != name or right is None or sign is None:
                return None
            plain = isinstance(value, ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Subscript)
            return f"{name} = {name} {sign} {right if plain else f'({right})'}"
    return None


def _span(file: str, node: ast.stmt) -> Span:
    return Span(file, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)


def _indent(file: str, statement: ast.stmt) -> str | None:
    """Return the text before a statement; None if other statements share its lines."""
    lines = source_text(file).splitlines()
    before = lines[statement.lineno - 1].encode()[: statement.col_offset].decode()
    after = lines[(statement.end_lineno or statement.lineno) - 1].encode()[statement.end_col_offset or 0 :]
    rest = after.decode().strip()
    return before if not before.strip() and (not rest or rest.startswith("#")) else None


def _tall(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions of a statement that cover several lines."""
    return (
        node for node in ast.walk(statement) if isinstance(node, ast.expr) and node.end_lineno != node.lineno
    )


def _imports_torch(tree: ast.Module) -> bool:
    names = (alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names)
    return any((name.asname or name.name.split(".")[0]) == "torch" for name in names)
