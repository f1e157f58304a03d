"""Fix graph breaks at calls that Dynamo does not trace, and in functions that it does not compile.

| source | edit |
|---|---|
| `np.interp(0.5, [0, 1], [1, 2])`, `json.dumps({…})` | a constant of the module: it depends on nothing |
| `float(np.linalg.norm(t.numpy()))` | `torch.linalg.norm(t)` |
| `torch._dynamo.graph_break()` | deleted |
| `copy.deepcopy(t)` | `t.clone()` |
| `@torch.compile` on a generator | moved to the one function that consumes it |
"""

import ast
from collections.abc import Iterator

from aotlens.fixes.candidates import BreakSite, Candidate, candidate
from aotlens.fixes.source import Function, Source
from aotlens.model.source import Edit, Span

__all__ = ["calls"]

PURE = frozenset({"np", "numpy", "json", "math", "re", "hashlib", "inspect", "textwrap", "string"})
"""Modules whose functions of constants are constants."""
NOT_PURE = ("np.random.", "numpy.random.")
IN_TORCH = {
    "linalg.norm": "linalg.norm",
    "sqrt": "sqrt",
    "exp": "exp",
    "log": "log",
    "abs": "abs",
    "mean": "mean",
    "sum": "sum",
    "max": "max",
    "min": "min",
    "std": "std",
}
"""Functions of numpy with a counterpart in torch."""


def calls(site: BreakSite) -> Iterator[Candidate | None]:
    """Yield candidates for a break at a call."""
    source = site.source
    if site.entry.code == "GB0003":
        yield _consumer(site)
        return
    node = source.expression_at(site.entry.span)
    if not isinstance(node, ast.Call):
        return
    called = source.code(node.func)
    statement = source.parents.get(node)
    if called == "torch._dynamo.graph_break" and isinstance(statement, ast.Expr):
        yield candidate("graph_break", "Remove the graph break", source.delete(statement))
    if called in ("copy.deepcopy", "deepcopy", "copy.copy") and len(node.args) == 1:
        text = f"{source.grouped(node.args[0])}.clone()"
        yield candidate("deepcopy", "Copy the tensor with clone()", source.replace(node, text))
    yield _numpy(source, node)
    yield _constant(source, node, called)


def _numpy(source: Source, node: ast.Call) -> Candidate | None:
    """Replace the numpy function by torch's on the tensor that numpy reads, as a Python number or not."""
    inner: ast.expr = node
    if isinstance(node.func, ast.Name) and node.func.id in ("float", "int") and len(node.args) == 1:
        inner = node.args[0]
    match inner:
        case ast.Call(func=function, args=[argument], keywords=[]):
            name = source.code(function).partition(".")[2]
            tensor = _tensor_of(argument)
            if source.code(function).startswith(("np.", "numpy.")) and tensor and name in IN_TORCH:
                text = f"torch.{IN_TORCH[name]}({source.code(tensor)})"
                edit = source.replace(node, text)
                return candidate("numpy", f"Use torch.{IN_TORCH[name]} in place of numpy", edit)
    return None


def _tensor_of(node: ast.expr) -> ast.expr | None:
    """Return the tensor of `t.detach().cpu().numpy()`."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="numpy" | "cpu"), args=[], keywords=[]):
            return _tensor_of(inner) or inner
    return None


def _constant(source: Source, node: ast.Call, called: str) -> Candidate | None:
    """Compute a call of literals once, when the module is loaded."""
    if called.partition(".")[0] not in PURE or called.startswith(NOT_PURE) or "." not in called:
        return None
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    if any(isinstance(part, ast.Name) for argument in arguments for part in ast.walk(argument)):
        return None
    outermost = [ancestor for ancestor in (node, *source.ancestors(node)) if isinstance(ancestor, ast.stmt)]
    name = source.unused_name(called.rpartition(".")[2].upper(), f"{called.rpartition('.')[2].upper()}_VALUE")
    statement = source.parents.get(node)
    if isinstance(statement, ast.Expr):
        return candidate("constant call", "Remove a call whose value is unused", source.delete(statement))
    before = source.insert_before(outermost[-1], f"{name} = {source.code(node)}\n\n")
    return candidate(
        "constant call", "Compute it once, when the module is loaded", before, source.replace(node, name)
    )


def _consumer(site: BreakSite) -> Candidate | None:
    """Move the decorator of a generator to the one function that reads it."""
    source = site.source
    generator = source.function_at(site.function.qualname, site.entry.span.line)
    if generator is None:
        return None
    compiled = [decorator for decorator in generator.decorator_list if "compile" in source.code(decorator)]
    consumers = {
        function
        for node in source.nodes(ast.Call)
        if source.code(node.func) == generator.name
        for function in (source.function(node),)
        if function is not None and function is not generator
    }
    if len(compiled) != 1 or len(consumers) != 1:
        return None
    consumer: Function = consumers.pop()
    line = compiled[0].lineno
    removed = Edit(Span(source.file, line, 0, line + 1, 0), "")
    added = source.insert_before(consumer, f"@{source.code(compiled[0])}")
    title = f"Compile `{consumer.name}`, which consumes the generator"
    return candidate("generator", title, removed, added)
