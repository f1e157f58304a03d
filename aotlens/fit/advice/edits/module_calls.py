"""Find the calls of modules in the source whose activations may be recomputed.

Invariant: a call that is yielded has arguments to pass on, and is not within a checkpoint.
"""

import ast
from collections.abc import Iterator

from aotlens.fit.advice.edits.evaluation import is_without_gradients
from aotlens.fit.advice.proposals import Site
from aotlens.fixes.source import Source
from aotlens.model.source import Span

__all__ = ["arguments_of", "group_of", "is_free", "module_calls", "saved_bytes", "title_of", "where"]

WITH_SUBMODULES = frozenset(
    {
        "ModuleList",
        "MultiheadAttention",
        "Sequential",
        "Transformer",
        "TransformerDecoder",
        "TransformerDecoderLayer",
        "TransformerEncoder",
        "TransformerEncoderLayer",
    }
)
"""Modules of `torch.nn` that save more than their input."""
MOST_CALLS = 6


def module_calls(source: Source, site: Site) -> list[ast.Call]:
    """Return the calls of modules with submodules: those in loops first, then what saves most."""
    calls = [
        *_calls_in_loops(source),
        *_calls_of_attributes(source, site),
        *_calls_by_name(source, site),
    ]
    return list(dict.fromkeys(calls))[: None if site.is_edited else MOST_CALLS]


def _calls_in_loops(source: Source) -> Iterator[ast.Call]:
    """Yield `block(x)` in `for block in blocks`, within a method."""
    for loop in source.nodes(ast.For):
        names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        function = source.function(loop)
        if function is None or source.enclosing_class(function) is None or function.name == "__init__":
            continue
        for statement in loop.body:
            for node in ast.walk(statement):
                match node:
                    case ast.Call(func=ast.Name(id=name)) if name in names and is_free(source, node):
                        yield node


def _calls_of_attributes(source: Source, site: Site) -> Iterator[ast.Call]:
    """Yield `self.encoder(x)` for modules with submodules; what saves most first."""
    calls = []
    for owner in source.nodes(ast.ClassDef):
        attributes = _modules_of(source, owner)
        for node in ast.walk(owner):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if name in attributes:
                    if is_free(source, node):
                        calls.append(node)
    yield from sorted(calls, key=lambda call: -saved_bytes(site, source.span(call)))


def _calls_by_name(source: Source, site: Site) -> Iterator[ast.Call]:
    """Yield `generator(noise)` in the file of the step, where gradients are recorded."""
    if site.step is None or site.step.source is not source:
        return
    for call in source.nodes(ast.Call):
        fact = site.names.get(call.func.id) if isinstance(call.func, ast.Name) else None
        is_module = fact is not None and fact.kind == "module" and fact.has_submodules
        if is_module and is_free(source, call) and not is_without_gradients(source, call):
            yield call


def _modules_of(source: Source, owner: ast.ClassDef) -> set[str]:
    """Return the attributes of a class to which a module with submodules is assigned."""
    attributes = set()
    for node in ast.walk(owner):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call(func=made)
            ):
                library, _, class_name = source.code(made).rpartition(".")
                is_elementary = library.endswith("nn") and class_name not in WITH_SUBMODULES
                if class_name[:1].isupper() and not is_elementary:
                    attributes.add(name)
    return attributes


def saved_bytes(site: Site, span: Span) -> int:
    """Return the bytes of the activations that the lines of a span save in a step."""
    return sum(
        each.bytes
        for each in site.fit.allocations
        if each.span is not None and each.kind == "saved activation" and span.holds(each.span)
    )


def is_free(source: Source, call: ast.Call) -> bool:
    """Return True if the call has arguments to pass on and is not within a checkpoint."""
    around = [node for node in source.ancestors(call) if isinstance(node, ast.Call | ast.Lambda)]
    is_within = any(
        isinstance(node, ast.Lambda) or source.code(node.func).rpartition(".")[2].startswith("checkpoint")
        for node in around
    )
    return bool(call.args) and not is_within and not any(isinstance(arg, ast.Starred) for arg in call.args)


def where(source: Source, node: ast.expr | ast.stmt) -> str:
    """Return `Block.forward`; empty in the module."""
    function = source.function(node)
    owner = source.enclosing_class(node)
    parts = (owner.name if owner is not None else "", function.name if function is not None else "")
    return ".".join(part for part in parts if part)


def title_of(source: Source, call: ast.Call) -> str:
    """Return "`self.mlp` in `Block.forward`", or the whole call where the step makes it."""
    inside = where(source, call)
    if isinstance(call.func, ast.Name) and source.enclosing_class(call) is None:
        return f"`{source.code(call)}`"
    return f"`{source.code(call.func)}`" + (f" in `{inside}`" if inside else "")


def group_of(source: Source, call: ast.Call) -> str:
    """Return the group of all edits that recompute what this call saves."""
    return f"checkpoint {where(source, call)} {source.code(call.func)} {_ordinal(source, call)}"


def _ordinal(source: Source, call: ast.Call) -> int:
    """Return how often the function reads the module before this call, checkpointed or not."""
    text, function = source.code(call.func), source.function(call)
    return sum(
        isinstance(node, ast.Name | ast.Attribute)
        and source.code(node) == text
        and (node.lineno, node.col_offset) < (call.lineno, call.col_offset)
        for node in ast.walk(function if function is not None else source.tree)
    )


def arguments_of(source: Source, call: ast.Call) -> str:
    """Return the arguments of a call as text, for another call that passes them on."""
    arguments = [source.code(argument) for argument in call.args]
    arguments += [
        f"{keyword.arg}={source.code(keyword.value)}"
        if keyword.arg is not None
        else f"**{source.code(keyword.value)}"
        for keyword in call.keywords
    ]
    return ", ".join(arguments)
