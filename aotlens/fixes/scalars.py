"""Fix graph breaks where a tensor becomes a Python number, and at builtins that Dynamo does not trace.

| source | edit |
|---|---|
| `t.item()`, `float(t)` | `t.detach()`: a number carries no gradient |
| `int(t)`, `bool(t)` | `t.detach().long()`, `t.detach().bool()` |
| `s = t.item()`, read by one condition | the tensor, and `torch.where` for the branch |
| `t.tolist()` | `t.detach().unbind()` |
| `math.sqrt(t)` | `torch.sqrt(t.detach())` |
| `sorted(t)` | `torch.sort(t).values.unbind()` |
| `t[t > 0].sum()` | `torch.where(t > 0, t, 0).sum()` |
| any other number, any other selection | `capture_scalar_outputs`, `capture_dynamic_output_shape_ops` |
"""

import ast
from collections.abc import Iterator

from aotlens.fixes.branches import branch_edit
from aotlens.fixes.candidates import BreakSite, Candidate, candidate
from aotlens.fixes.source import Source
from aotlens.model.source import Edit

__all__ = ["scalars", "selections"]

IN_TORCH = frozenset(
    (
        *("sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "tanh", "sinh"),
        *("cosh", "asin", "acos", "atan", "floor", "ceil", "isnan", "isinf", "isfinite", "fabs", "erf"),
    )
)
"""Functions of `math` with the same meaning and name in torch; `fabs` is `abs` there."""

CAPTURE = "torch._dynamo.config.{} = True"
SELECTING = frozenset({"GB0036"})


def scalars(site: BreakSite) -> Iterator[Candidate | None]:
    """Yield candidates for a break at an expression whose value is a Python number."""
    source = site.source
    node = source.expression_at(site.entry.span)
    if not isinstance(node, ast.Call) or not source.imports("torch"):
        return
    tensor = _tensor(source, node)
    if tensor is not None:
        yield _in_a_branch(source, node, tensor)
        kind = "tolist" if tensor.endswith("unbind()") else "item"
        title = "Keep the tensors" if kind == "tolist" else "Keep the 0-d tensor"
        yield candidate(kind, title, source.replace(node, tensor))
        capture = source.after_imports(CAPTURE.format("capture_scalar_outputs"))
        yield candidate(kind, "Capture numbers that depend on data", capture)
        return
    replaced = _builtin(source, node)
    if replaced is not None:
        yield candidate("builtin", f"Use torch in place of `{source.code(node.func)}`", replaced)


def _tensor(source: Source, node: ast.Call) -> str | None:
    """Return the number as a tensor; None for other calls."""
    match node:
        case ast.Call(func=ast.Attribute(value=tensor, attr="item"), args=[], keywords=[]):
            return f"{source.grouped(tensor)}.detach()"
        case ast.Call(func=ast.Attribute(value=tensor, attr="tolist"), args=[], keywords=[]):
            return f"{source.grouped(tensor)}.detach().unbind()"
        case ast.Call(func=ast.Name(id="float"), args=[tensor], keywords=[]):
            return f"{source.grouped(tensor)}.detach()"
        case ast.Call(func=ast.Name(id="int" | "bool" as name), args=[tensor], keywords=[]):
            method = "long" if name == "int" else "bool"
            return f"{source.grouped(tensor)}.detach().{method}()"
    return None


def _in_a_branch(source: Source, node: ast.Call, tensor: str) -> Candidate | None:
    """Edit `s = t.item()` and its only condition together: each edit alone removes no break."""
    statement, function = source.parents.get(node), source.function(node)
    if not isinstance(statement, ast.Assign) or function is None or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        return None
    branches = [
        branch
        for branch in ast.walk(function)
        if isinstance(branch, ast.If | ast.IfExp)
        and any(isinstance(read, ast.Name) and read.id == target.id for read in ast.walk(branch.test))
    ]
    if len(branches) != 1:
        return None
    title = "Keep the 0-d tensor, and choose with torch.where"
    edits = (source.replace(node, tensor), branch_edit(source, branches[0]))
    return candidate("item in a branch", title, *edits)


def _builtin(source: Source, node: ast.Call) -> Edit | None:
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="math"), attr=name), args=[tensor], keywords=[]
        ) if name in IN_TORCH:
            name = "abs" if name == "fabs" else name
            return source.replace(node, f"torch.{name}({source.grouped(tensor)}.detach())")
        case ast.Call(func=ast.Name(id="sorted"), args=[tensor], keywords=[]):
            return source.replace(node, f"torch.sort({source.code(tensor)}).values.unbind()")
        case ast.Call(func=ast.Name(id="any" | "all" as name), args=[tensor], keywords=[]):
            return source.replace(node, f"{source.grouped(tensor)}.{name}()")
    return None


def selections(site: BreakSite) -> Iterator[Candidate | None]:
    """Yield candidates for an operator whose output size depends on data."""
    source = site.source
    node = source.expression_at(site.entry.span)
    if site.entry.code not in SELECTING or node is None or not source.imports("torch"):
        return
    call, method = source.parents.get(source.parents.get(node, node)), source.parents.get(node)
    if (
        isinstance(node, ast.Subscript)
        and isinstance(method, ast.Attribute)
        and method.attr == "sum"
        and isinstance(call, ast.Call)
        and not call.args
    ):
        text = f"torch.where({source.code(node.slice)}, {source.code(node.value)}, 0)"
        yield candidate("selection", "Sum with zeros in place of a selection", source.replace(node, text))
    capture = source.after_imports(CAPTURE.format("capture_dynamic_output_shape_ops"))
    yield candidate("selection", "Capture sizes that depend on data", capture)
