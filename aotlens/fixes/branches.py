"""Fix graph breaks at branches on a tensor: both sides are computed, and `torch.where` chooses.

| source | edit |
|---|---|
| `if t: x = a` | `x = torch.where(t, a, x)` |
| `if t: x = a` / `else: x = b` | `x = torch.where(t, a, b)` |
| `if t: return a` / `return b` | `return torch.where(t, a, b)` |
| `a if t else b` | `torch.where(t, a, b)` |

`torch.cond` runs only one side; it is the second choice, because some operators have no gradient in it.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from aotlens.fixes.candidates import BreakSite, Candidate, candidate
from aotlens.fixes.source import Source
from aotlens.model.source import Edit, Span

__all__ = ["branch_edit", "branches"]

BOOLEAN_CALLS = frozenset({"any", "all", "isnan", "isinf", "isfinite", "logical_not", "logical_and"})
NUMBERS = frozenset({"float", "int", "bool"})
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
}

Choice = Literal["torch.where", "torch.cond"]
TITLES: dict[Choice, str] = {
    "torch.where": "Compute both sides and choose with torch.where",
    "torch.cond": "Choose with torch.cond",
}


@dataclass(frozen=True, slots=True)
class ChosenValue:
    """A value that depends on the condition."""

    name: str
    """The assigned name; empty for a value that is returned."""
    yes: str
    no: str


def branches(site: BreakSite) -> Iterator[Candidate | None]:
    """Yield candidates for a break at the condition of a branch, or at a number in a condition."""
    source = site.source
    node = source.expression_at(site.entry.span)
    if node is None or not source.imports("torch"):
        return
    branch = _branch_of(source, node)
    if branch is None:
        return
    for choice, title in TITLES.items():
        yield candidate("tensor branch", title, branch_edit(source, branch, choice))


def _branch_of(source: Source, node: ast.expr) -> ast.If | ast.IfExp | None:
    """Return the branch whose condition contains the expression."""
    inner: ast.AST = node
    for outer in source.ancestors(node):
        if isinstance(outer, ast.If | ast.IfExp):
            return outer if outer.test is inner else None
        if not isinstance(outer, ast.expr):
            return None
        inner = outer
    return None


def branch_edit(source: Source, branch: ast.If | ast.IfExp, choice: Choice = "torch.where") -> Edit | None:
    """Return the branch as a choice between values; None if a side does more than compute some."""
    condition = tensor_condition(source, branch.test)
    if condition is None:
        return None
    if isinstance(branch, ast.IfExp):
        yes, no = source.code(branch.body), source.code(branch.orelse)
        return source.replace(branch, _call(choice, condition, yes, no))
    return _statement_edit(source, branch, choice, condition)


def _call(choice: Choice, condition: str, yes: str, no: str) -> str:
    if choice == "torch.where":
        return f"torch.where({condition}, {yes}, {no})"
    sides = (f"{side}.clone()" if side.replace(".", "_").isidentifier() else side for side in (yes, no))
    return f"torch.cond({condition}, {', '.join(f'lambda: {side}' for side in sides)})"


def _statement_edit(source: Source, branch: ast.If, choice: Choice, condition: str) -> Edit | None:
    indent = source.indent(branch)
    if indent is None or source.between(source.span(branch)).startswith("elif"):
        return None
    span = source.span(branch)
    returned = _returned(source, branch)
    if returned is not None:
        (yes, no), last = returned
        span = Span(source.file, span.line, span.col, last.end_lineno or 0, last.end_col_offset or 0)
        lines = [f"return {_call(choice, condition, yes, no)}"]
    else:
        chosen = _assigned(source, branch)
        if not chosen:
            return None
        lines = []
        if len(chosen) > 1:
            name = source.unused_name("condition", "is_chosen")
            lines.append(f"{name} = {condition}")
            condition = name
        lines += [
            f"{choice_of_name.name} = {_call(choice, condition, choice_of_name.yes, choice_of_name.no)}"
            for choice_of_name in chosen
        ]
    comments = source.comments(span)
    return Edit(span, f"\n{indent}".join([*comments, *lines]))


def _returned(source: Source, branch: ast.If) -> tuple[tuple[str, str], ast.stmt] | None:
    """Return both values of `if t: return a`, `return b`, and the last of the two statements."""
    otherwise = branch.orelse
    if not otherwise:
        block = source.siblings(branch)
        otherwise = block[block.index(branch) + 1 :][:1]
    if len(branch.body) != 1 or len(otherwise) != 1:
        return None
    first, second = branch.body[0], otherwise[0]
    if not isinstance(first, ast.Return) or not isinstance(second, ast.Return):
        return None
    if first.value is None or second.value is None:
        return None
    return (source.code(first.value), source.code(second.value)), second


def _assigned(source: Source, branch: ast.If) -> list[ChosenValue]:
    """Return the values that both sides assign; empty if a side does anything else."""
    yes, no = _assignments(source, branch.body), _assignments(source, branch.orelse)
    if yes is None or no is None:
        return []
    return [ChosenValue(name, yes.get(name, name), no.get(name, name)) for name in (yes | no)]


def _assignments(source: Source, block: Sequence[ast.stmt]) -> dict[str, str] | None:
    """Return each target with its value; None for other statements, or a read of an earlier target."""
    values: dict[str, str] = {}
    for statement in block:
        if isinstance(statement, ast.Pass):
            continue
        value: ast.expr | None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
            text = source.code(value)
        elif isinstance(statement, ast.AugAssign):
            target, value = statement.target, statement.value
            operator = OPERATORS.get(type(statement.op))
            if operator is None:
                return None
            text = f"{source.code(target)} {operator} {source.grouped(value)}"
        else:
            return None
        if not isinstance(target, ast.Name | ast.Attribute):
            return None
        reads = {source.code(node) for node in ast.walk(value) if isinstance(node, ast.Name | ast.Attribute)}
        name = source.code(target)
        if reads & set(values) or name in values:
            return None
        values[name] = text
    return values


def tensor_condition(source: Source, test: ast.expr) -> str | None:
    """Return a condition as a boolean tensor, with operators for `and`, `or` and `not`."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = tensor_condition(source, operand)
            return None if inner is None else f"torch.logical_not({inner})"
        case ast.BoolOp(op=operator, values=values):
            sides = [tensor_condition(source, value) for value in values]
            name = "torch.logical_and" if isinstance(operator, ast.And) else "torch.logical_or"
            whole = sides[0]
            for side in sides[1:]:
                if whole is None or side is None:
                    return None
                whole = f"{name}({whole}, {side})"
            return whole
        case ast.Compare(left=left, ops=operators, comparators=[right]):
            if isinstance(operators[0], ast.Is | ast.IsNot | ast.In | ast.NotIn):
                return None
            between = source.between(_gap(source, left, right))
            return f"{without_number(source, left)}{between}{without_number(source, right)}"
        case ast.Call(func=ast.Name(id="any" | "all" as name), args=[argument], keywords=[]):
            return f"{source.grouped(argument)}.{name}()"
        case ast.Call(func=ast.Name(id="bool"), args=[argument], keywords=[]):
            return tensor_condition(source, argument)
        case ast.Call(func=function) if source.code(function).rpartition(".")[2] in BOOLEAN_CALLS:
            return source.code(test)
        case ast.Compare():
            return None
    return f"{without_number(source, test, group=True)} != 0"


def _gap(source: Source, left: ast.expr, right: ast.expr) -> Span:
    return Span(source.file, left.end_lineno or 0, left.end_col_offset or 0, right.lineno, right.col_offset)


def without_number(source: Source, node: ast.expr, group: bool = False) -> str:
    """Return the tensor of `t.item()`, `float(t)`, `int(t)` or `bool(t)`; other expressions unchanged."""
    match node:
        case ast.Call(func=ast.Attribute(value=tensor, attr="item"), args=[], keywords=[]):
            return source.grouped(tensor) if group else source.code(tensor)
        case ast.Call(func=ast.Name(id=name), args=[tensor], keywords=[]) if name in NUMBERS:
            return source.grouped(tensor) if group else source.code(tensor)
    return source.grouped(node) if group else source.code(node)
