"""Fix graph breaks at calls that print, log, warn or read a clock.

| call | edit |
|---|---|
| `print(…)` | `reorderable_logging_functions.add(print)`: it prints after the graph, everything as before |
| `print("a", x.shape)` | the same, with the arguments as one f-string: Dynamo moves only tensors and text |
| `warnings.warn(…)` | `reorderable_logging_functions.add(warnings.warn)` |
| `log.info(…)` | `if not torch.compiler.is_compiling():` around it: compiled code does not log |
| `time.time()` | deleted if unused; else 0.0 in compiled code, where a clock measures tracing |
"""

import ast
from collections.abc import Iterator

from aotlens.fixes.candidates import BreakSite, Candidate, candidate
from aotlens.fixes.source import Source
from aotlens.model.source import Edit, Span

__all__ = ["messages"]

REORDER = "torch._dynamo.config.reorderable_logging_functions.add({})"
CLOCKS = frozenset({"time", "perf_counter", "monotonic", "process_time", "time_ns", "perf_counter_ns"})
LOGGING = frozenset({"debug", "info", "warning", "error", "critical", "exception", "log"})


def messages(site: BreakSite) -> Iterator[Candidate | None]:
    """Yield candidates for a break at a call whose value matters little."""
    source = site.source
    node = source.expression_at(site.entry.span)
    if not isinstance(node, ast.Call) or not source.imports("torch"):
        return
    called = source.code(node.func)
    if called == "print":
        yield from _print(source, node)
    elif called == "warnings.warn":
        title = "Let compiled code warn after the graph"
        yield candidate("warning", title, source.after_imports(REORDER.format(called)))
    elif called.rpartition(".")[2] in LOGGING and "." in called:
        yield candidate("logging", "Log from eager code only", *_eager_only(source, node))
    elif called.startswith("time.") and called.removeprefix("time.") in CLOCKS:
        yield from _clock(source, node, called)


def _print(source: Source, node: ast.Call) -> Iterator[Candidate | None]:
    allowed = source.after_imports(REORDER.format("print"))
    title = "Let compiled code print after the graph"
    yield candidate("print", title, allowed)
    text = _as_one_string(source, node)
    if text is not None:
        yield candidate("print", f"{title}, as one string", allowed, source.replace(node, text))


def _as_one_string(source: Source, node: ast.Call) -> str | None:
    """Return `print(f"shape {x.shape}")`; None if an argument is not possible in an f-string."""
    if node.keywords or len(node.args) < 2:
        return None
    parts = []
    for argument in node.args:
        code = source.code(argument)
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            if any(character in argument.value for character in '\\"\n{}'):
                return None
            parts.append(argument.value)
        elif any(character in code for character in "\"\\\n{}!#:'") or isinstance(argument, ast.Starred):
            return None
        else:
            parts.append(f"{{{code}}}")
    return f'print(f"{" ".join(parts)}")'


def _eager_only(source: Source, node: ast.Call) -> Iterator[Edit | None]:
    """Yield the statement under `if not torch.compiler.is_compiling():`, with its lines indented."""
    statement = source.parents.get(node)
    indent = source.indent(statement) if isinstance(statement, ast.Expr) else None
    if indent is None or not isinstance(statement, ast.Expr) or _spans_text(statement):
        yield None
        return
    step = "\t" if indent.startswith("\t") else "    "
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    yield Edit(Span(source.file, first, 0, first, 0), f"{indent}if not torch.compiler.is_compiling():\n")
    for line in range(first, last + 1):
        yield Edit(Span(source.file, line, len(indent), line, len(indent)), step)


def _spans_text(statement: ast.stmt) -> bool:
    """Return True if a string of the statement has several lines, so that indenting changes it."""
    strings = (node for node in ast.walk(statement) if isinstance(node, ast.Constant | ast.JoinedStr))
    return any(node.end_lineno != node.lineno for node in strings)


def _clock(source: Source, node: ast.Call, called: str) -> Iterator[Candidate | None]:
    statement = source.statement(node)
    function = source.function(node)
    if isinstance(statement, ast.Expr):
        yield candidate("time", "Remove a time that nothing reads", source.delete(statement))
    if function is not None and (unread := _unread_times(source, function)):
        edits = [source.delete(entry) for entry in unread]
        if statement in unread:
            yield candidate("time", "Remove times that nothing reads", *edits)
    zero = "0" if called.endswith("_ns") else "0.0"
    text = f"({zero} if torch.compiler.is_compiling() else {source.code(node)})"
    edit = source.replace(node, text)
    title = "Read the clock in eager code only: in compiled code it would be read while tracing"
    yield Candidate("time", title, (edit,), changes_numbers=True)


def _unread_times(source: Source, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """Return assignments from clocks whose names only other such assignments read."""
    assigned: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            calls = [call for call in ast.walk(node.value) if isinstance(call, ast.Call)]
            if all(source.code(call.func).startswith("time.") for call in calls):
                assigned.setdefault(node.targets[0].id, []).append(node)
    clocks = {
        name: statements
        for name, statements in assigned.items()
        if any(isinstance(node, ast.Call) for assignment in statements for node in ast.walk(assignment))
    }
    statements = {statement for group in clocks.values() for statement in group}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id in clocks and source.statement(node) not in statements:
            return []
    return [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node in statements]
