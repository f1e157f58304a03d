"""Fix recompilations for sizes, for arguments that are sometimes None, and for lists that grow.

| source | edit |
|---|---|
| `f(x)`, x of several sizes | `torch._dynamo.mark_dynamic(x, 0)` before the call |
| `torch.compile(f)` | `dynamic=True`; for module tensors `force_nn_module_property_static_shapes` off |
| `f(x, mask)`, mask None at times | `torch.ones_like(x)` where it is multiplied, zeros where it is added |
| `f(x, cache)`, `torch.stack(cache)` within | `f(x, torch.stack(cache))` |
"""

import ast
import re
from collections.abc import Iterator

from aotlens.fixes.candidates import Candidate, ValueSite, candidate
from aotlens.fixes.compiled_calls import argument_of, calls_of, compile_sites, dynamic_edit, parameter_names
from aotlens.fixes.source import Function, Source
from aotlens.model.source import Edit, Span

__all__ = ["lists", "neutral_tensors", "sizes"]

_SIZE = re.compile(r"^(?P<name>.+)\.shape\[(?P<dim>\d+)\]$")
_LENGTH = re.compile(r"^len\((?P<name>\w+)\)$")
STATIC = "torch._dynamo.config.force_nn_module_property_static_shapes = False"
JOINING = frozenset({"torch.stack", "torch.cat", "torch.concat"})


def sizes(site: ValueSite) -> Iterator[Candidate | None]:
    """Yield candidates for a size that changes from call to call."""
    match = _SIZE.match(site.value.name)
    if site.value.kind != "size" or match is None:
        return
    source = site.source
    function = source.function_at(site.function.qualname, site.function.span.line)
    if match["name"].isidentifier() and function is not None:
        yield _marked(source, function, match["name"], int(match["dim"]))
    for other in (
        source,
        *(compile_site for compile_site in site.sources.values() if compile_site is not source),
    ):
        sites = compile_sites(other, function if other is source else None)
        edits = [edit for compile_site in sites if (edit := dynamic_edit(other, compile_site)) is not None]
        if edits:
            yield candidate("dynamic", "Compile for all sizes at once with dynamic=True", *edits)
    if match["name"].startswith("self.") and source.imports("torch"):
        title = "Let sizes of a module's own tensors vary"
        yield candidate("dynamic", title, source.after_imports(STATIC))


def _marked(source: Source, function: Function, name: str, dim: int) -> Candidate | None:
    """Insert `mark_dynamic` before each call; None if a call passes more than a name."""
    edits: list[Edit | None] = []
    for call in calls_of(source, function):
        passed, statement = argument_of(function, call, name), source.statement(call)
        if not isinstance(passed, ast.Name) or statement is None:
            return None
        mark = f"torch._dynamo.mark_dynamic({passed.id}, {dim})"
        edits.append(source.insert_before(statement, mark))
    if not edits or not source.imports("torch"):
        return None
    return candidate("mark_dynamic", f"Tell Dynamo that `{name}.shape[{dim}]` varies", *edits)


def neutral_tensors(site: ValueSite) -> Iterator[Candidate | None]:
    """Yield a candidate for an argument that is a tensor or None."""
    name, source = site.value.name, site.source
    function = source.function_at(site.function.qualname, site.function.span.line)
    is_none = any("None" in (cause.old, cause.new) for cause in site.value.causes)
    if site.value.kind != "type" or not is_none or function is None or not name.isidentifier():
        return
    neutral = _neutral(function, name)
    if neutral is None or not source.imports("torch"):
        return
    like, maker = neutral
    edits: list[Edit | None] = []
    for call in calls_of(source, function):
        other = argument_of(function, call, like)
        if not isinstance(other, ast.Name):
            return
        if _may_be_none(argument_of(function, call, name)):
            edits.append(_with_neutral(source, function, call, name, f"{maker}({other.id})"))
    title = f"Pass a tensor without effect in place of `{name}=None`"
    yield candidate("none", title, *edits) if edits else None


def _neutral(function: Function, name: str) -> tuple[str, str] | None:
    """Return the other operand of the argument, and the function that makes a neutral tensor."""
    parameters = parameter_names(function)
    for node in ast.walk(function):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult | ast.Add):
            continue
        pair = (node.left, node.right)
        names = [operand.id for operand in pair if isinstance(operand, ast.Name)]
        if name in names and len(names) == len(pair):
            other = next((operand for operand in names if operand != name), None)
            if other in parameters and other is not None:
                return other, "torch.ones_like" if isinstance(node.op, ast.Mult) else "torch.zeros_like"
    return None


def _may_be_none(passed: ast.expr | None) -> bool:
    """Return True unless the argument is computed in the call, which is assumed to give a tensor."""
    is_none = isinstance(passed, ast.Constant) and passed.value is None
    return passed is None or is_none or isinstance(passed, ast.Name | ast.Attribute)


def _with_neutral(source: Source, function: Function, call: ast.Call, name: str, neutral: str) -> Edit | None:
    """Return the call with the neutral tensor in place of None or of a missing argument."""
    passed = argument_of(function, call, name)
    if passed is None:
        last = max(
            [*call.args, *(keyword.value for keyword in call.keywords)],
            key=lambda argument: (argument.end_lineno or 0, argument.end_col_offset or 0),
        )
        line, col = last.end_lineno or last.lineno, last.end_col_offset or 0
        return Edit(Span(source.file, line, col, line, col), f", {name}={neutral}")
    if isinstance(passed, ast.Constant) and passed.value is None:
        return source.replace(passed, neutral)
    code = source.code(passed)
    return source.replace(passed, f"{neutral} if {code} is None else {code}")


def lists(site: ValueSite) -> Iterator[Candidate | None]:
    """Yield a candidate for a list that the function only joins into one tensor."""
    match = _LENGTH.match(site.value.name)
    source = site.source
    function = source.function_at(site.function.qualname, site.function.span.line)
    if site.value.kind != "length" or match is None or function is None:
        return
    name = match["name"]
    reads = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
    joins = {source.parents.get(node) for node in reads}
    if len(joins) != 1:
        return
    join = joins.pop()
    if not isinstance(join, ast.Call) or source.code(join.func) not in JOINING or join.args[:1] != reads:
        return
    rest = source.code(join).removeprefix(f"{source.code(join.func)}({name}")
    edits: list[Edit | None] = [source.replace(join, name)]
    for call in calls_of(source, function):
        passed = argument_of(function, call, name)
        text = "" if passed is None else f"{source.code(join.func)}({source.code(passed)}{rest}"
        edits.append(None if passed is None else source.replace(passed, text))
    if len(edits) > 1:
        yield candidate("list", f"Pass `{name}` as one tensor", *edits)
