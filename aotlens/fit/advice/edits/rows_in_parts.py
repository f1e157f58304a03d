"""Compute rows of a forward in parts, each checkpointed, so that only one part's values exist at once.

| source | edit |
|---|---|
| `self.mlp(x)` | `checkpoint_in_parts(self.mlp, x)` |
| `hidden = F.gelu(self.up(x))` | `hidden = checkpoint_in_parts(lambda x: F.gelu(self.up(x)), x)` |
| several assignments, of which only the last value is read later | a local function of them, in parts |
| `checkpoint(self.mlp, x)` | `torch.cat([checkpoint(self.mlp, x_part) for x_part in x.chunk(4)])` |

Unlike micro batches these leave the loss, and what needs the whole batch elsewhere, as they are.  Whether the
rows are independent of each other is found out by comparing the training.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from aotlens.fit.advice.edits.module_calls import (
    group_of,
    module_calls,
    saved_bytes,
    title_of,
    where,
)
from aotlens.fit.advice.proposals import Proposal, Site, add_import, proposal
from aotlens.fit.advice.step import INDENT, indented, lines_of, names_in
from aotlens.fixes.source import Function, Source
from aotlens.model.source import Edit

__all__ = ["rows_in_parts"]

KIND = "rows in parts"
NAME = "checkpoint_in_parts"
PARTS = 4
FUNCTION = f'''
def {NAME}(function, *tensors, parts={PARTS}):
    """Call a function of rows, which uses no random numbers, with checkpointed parts; return all rows."""
    options = {{"use_reentrant": False, "preserve_rng_state": False}}
    chunks = zip(*(tensor.chunk(parts) for tensor in tensors))
    return torch.cat([torch.utils.checkpoint.checkpoint(function, *chunk, **options) for chunk in chunks])
'''
MOST_SEGMENTS = 4
MOST_STATEMENTS = 8
RANDOM = re.compile(
    r"\b(rand\w*|\w*drop(out)?\w*|bernoulli_?|multinomial|(log_)?normal_?|uniform_|exponential_|poisson"
    r"|gumbel_softmax|rrelu_?)\(|dropout_p\s*="
)
"""A call that uses random numbers: names of torch's functions, and usual names of dropout layers."""
HOW = f"in {PARTS} parts of the rows, each checkpointed"


def rows_in_parts(site: Site) -> Iterator[Proposal | None]:
    """Yield the edit for calls of modules, then for other values of forwards, what saves most first."""
    for source in site.sources.values():
        if not source.imports("torch"):
            continue
        calls = module_calls(source, site)
        for call in calls:
            yield _call_in_parts(source, call)
        for call in source.nodes(ast.Call):
            yield _checkpoint_in_parts(source, call)
        values = [*_assigned(source, site, calls), *_returned(source, site, calls)]
        if not site.is_edited:
            values.sort(key=lambda row: -row[0])
            values = [row for row in values if row[0]][:MOST_SEGMENTS]
        yield from (edit for _, edit in values)


def _proposal(source: Source, group: str, title: str, *edits: Edit | None) -> Proposal | None:
    function = [] if NAME in source.text else [source.after_imports(f"\n{FUNCTION.strip()}")]
    return proposal(
        KIND, group, title, *edits, *function, *add_import(source, "import torch.utils.checkpoint")
    )


def _call_in_parts(source: Source, call: ast.Call) -> Proposal | None:
    """Return the edit for a call with one argument."""
    match call:
        case ast.Call(args=[argument], keywords=[]):
            text = f"{NAME}({source.code(call.func)}, {source.code(argument)})"
            title = f"Call {title_of(source, call)} {HOW}"
            return _proposal(source, group_of(source, call), title, source.replace(call, text))
    return None


def _checkpoint_in_parts(source: Source, call: ast.Call) -> Proposal | None:
    """Return the edit for a checkpoint of a module with one argument."""
    match call:
        case ast.Call(args=[module, ast.Name(id=rows) as argument]) if (
            source.code(call.func).rpartition(".")[2] == "checkpoint"
        ):
            written = source.code(call)
            start = len(written) - len(written.partition(source.code(module))[2])
            part = written[:start] + written[start:].replace(rows, f"{rows}_part", 1)
            text = f"torch.cat([{part} for {rows}_part in {source.code(argument)}.chunk({PARTS})])"
            name, inside = source.code(module), where(source, call)
            title = f"Checkpoint `{name}` in `{inside}` in {PARTS} parts of the rows, one after the other"
            return proposal(KIND, f"rows {inside} {name}", title, source.replace(call, text))
    return None


Value = tuple[int, Proposal | None]
"""The bytes that a value's lines save, and the edit."""


def _assigned(source: Source, site: Site, calls: Sequence[ast.Call]) -> Iterator[Value]:
    """Yield the edit for each assignment of a forward, with those before it that only it needs."""
    for function in _forwards(source, site):
        for statement in ast.walk(function):
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if value not in calls:
                    statements = _needed(source, function, statement)
                    rows = _rows(source, function, statements)
                    span = lines_of(source, statements[0], statement)
                    if not rows or _is_no_part(source.between(span)):
                        continue
                    title = f"Compute `{name}` in `{where(source, statement)}` {HOW}"
                    edit = _segment(source, statements, name, rows)
                    group = f"rows {where(source, statement)} {name}"
                    yield saved_bytes(site, span), _proposal(source, group, title, edit)


def _returned(source: Source, site: Site, calls: Sequence[ast.Call]) -> Iterator[Value]:
    """Yield the edit for each value that a forward computes in its `return`."""
    for function in _forwards(source, site):
        for statement in ast.walk(function):
            if not isinstance(statement, ast.Return) or statement.value is None:
                continue
            value = statement.value
            for index, item in enumerate(value.elts if isinstance(value, ast.Tuple) else [value]):
                rows = _rows(source, function, (item,))
                is_call = any(isinstance(node, ast.Call) for node in ast.walk(item))
                if item in calls or not rows or not is_call or _is_no_part(source.code(item)):
                    continue
                title = f"Compute what `{where(source, statement)}` returns"
                title += f" as number {index + 1}" if isinstance(value, ast.Tuple) else ""
                edit = source.replace(item, _in_parts(source, item, rows))
                group = f"rows {where(source, statement)} return {index}"
                size_bytes = saved_bytes(site, source.span(item))
                yield size_bytes, _proposal(source, group, f"{title} {HOW}", edit)


def _forwards(source: Source, site: Site) -> Iterator[Function]:
    """Yield the functions that may belong to a forward: not the one that trains, and no constructor."""
    scope = None if site.step is None else site.step.scope
    for node in source.nodes(ast.FunctionDef):
        is_local = isinstance(source.parents.get(node), Function)
        if node is not scope and node.name != "__init__" and not is_local:
            yield node


def _is_no_part(text: str) -> bool:
    """Return True for a text with a checkpoint, a value for Python, or random numbers, which would differ."""
    return "checkpoint" in text or ".item()" in text or RANDOM.search(text) is not None


def _needed(source: Source, function: Function, last: ast.Assign) -> tuple[ast.Assign, ...]:
    """Return the assignment with those directly before it whose values nothing else reads."""
    block = source.siblings(last)
    end = block.index(last)
    needed = [last]
    for statement in reversed(block[max(0, end + 1 - MOST_STATEMENTS) : end]):
        if not isinstance(statement, ast.Assign) or _is_no_part(source.code(statement)):
            break
        stored, inside = names_in(statement, ast.Store), {*ast.walk(statement)}
        inside.update(*(ast.walk(each) for each in needed))
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in stored]
        is_plain = all(isinstance(target, ast.Name) for target in statement.targets)
        if not is_plain or not all(node in inside for node in names):
            break
        needed.insert(0, statement)
    return tuple(needed)


def _rows(source: Source, function: Function, nodes: Sequence[ast.stmt | ast.expr]) -> tuple[str, ...]:
    """Return the local names that these nodes read from outside of them, in the order of their names."""
    arguments = function.args
    names = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    names |= names_in(function, ast.Store)
    called = {
        node.func.id
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    read: set[str] = set()
    stored: set[str] = set()
    for node in nodes:
        read |= names_in(node, ast.Load) - stored
        stored |= names_in(node, ast.Store)
    return tuple(sorted(read & names - called - {"self", "cls"}))


def _in_parts(source: Source, value: ast.expr, rows: tuple[str, ...]) -> str:
    match value:
        case ast.Call(func=function, args=[ast.Name(id=name)], keywords=[]) if rows == (name,):
            return f"{NAME}({source.code(function)}, {name})"
    names = ", ".join(rows)
    return f"{NAME}(lambda {names}: {source.code(value)}, {names})"


def _segment(
    source: Source, statements: tuple[ast.Assign, ...], name: str, rows: tuple[str, ...]
) -> Edit | None:
    """Return the edit that makes the statements a local function, or a single one a lambda."""
    last = statements[-1]
    if len(statements) == 1:
        return source.replace(last.value, _in_parts(source, last.value, rows))
    indent, body = source.indent(last), indented(source, statements)
    if indent is None or body is None:
        return None
    function, names = f"rows_of_{name}", ", ".join(rows)
    text = f"{indent}def {function}({names}):\n{body}{indent}{INDENT}return {name}\n\n"
    text += f"{indent}{name} = {NAME}({function}, {names})\n"
    return Edit(lines_of(source, statements[0], last), text)
