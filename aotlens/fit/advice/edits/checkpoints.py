"""Recompute the activations of modules in the backward.

| source | edit |
|---|---|
| `for block in self.blocks: x = block(x)` | `checkpoint(block, x, use_reentrant=False)` |
| `self.encoder(x)` for a module with submodules | the same |
| `self.features(x)` for an `nn.Sequential` | also `checkpoint_sequential(self.features, 2, x, …)` |
| each of these, where that updates buffers twice | `checkpoint_once(self.features, x)` |
"""

import ast
from collections.abc import Iterator

from aotlens.fit.advice.edits.checkpoints_once import with_buffers
from aotlens.fit.advice.proposals import Proposal, Site, add_import, proposal
from aotlens.fixes.source import Source

__all__ = ["checkpoints"]

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
SEGMENTS = (2, 3, 4)
MODULE = "torch.utils.checkpoint"


def checkpoints(site: Site) -> Iterator[Proposal | None]:
    """Yield checkpoints around calls of modules, the calls in loops first."""
    for source in site.sources.values():
        calls = [*_calls_in_loops(source), *_calls_of_attributes(source, site)]
        calls = list(dict.fromkeys(calls))[:MOST_CALLS]
        plain = [_checkpointed(source, call) for call in calls]
        yield from plain
        for call, items in _sequential_calls(source, site):
            for segments in SEGMENTS:
                if segments < items:
                    yield _in_segments(source, call, segments)
        arguments = [_arguments(source, call) for call in calls]
        yield from with_buffers(site, source, zip(calls, plain, arguments, strict=True))


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
                    case ast.Call(func=ast.Name(id=name)) if name in names and _is_free(source, node):
                        yield node


def _calls_of_attributes(source: Source, site: Site) -> Iterator[ast.Call]:
    """Yield `self.encoder(x)` for modules with submodules; what saves most at the peak first."""
    calls = []
    for owner in source.nodes(ast.ClassDef):
        attributes = _modules_of(source, owner)
        for node in ast.walk(owner):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if name in attributes:
                    if _is_free(source, node):
                        calls.append(node)
    yield from sorted(calls, key=lambda call: -_saved_bytes(source, site, call))


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


def _saved_bytes(source: Source, site: Site, call: ast.Call) -> int:
    span = source.span(call)
    return sum(
        row.bytes
        for row in site.fit.by_line
        if row.span is not None and row.kind == "saved activation" and span.holds(row.span)
    )


def _is_free(source: Source, call: ast.Call) -> bool:
    """Return True if the call has arguments to pass on and is not within a checkpoint."""
    around = [node for node in source.ancestors(call) if isinstance(node, ast.Call | ast.Lambda)]
    is_within = any(
        isinstance(node, ast.Lambda) or source.code(node.func).rpartition(".")[2].startswith("checkpoint")
        for node in around
    )
    return bool(call.args) and not is_within and not any(isinstance(arg, ast.Starred) for arg in call.args)


def _name(source: Source, call: ast.Call) -> str:
    function = source.function(call)
    owner = source.enclosing_class(call)
    parts = (owner.name if owner is not None else "", function.name if function is not None else "")
    return ".".join(part for part in parts if part)


def _arguments(source: Source, call: ast.Call) -> str:
    arguments = [source.code(argument) for argument in call.args]
    arguments += [
        f"{keyword.arg}={source.code(keyword.value)}"
        if keyword.arg is not None
        else f"**{source.code(keyword.value)}"
        for keyword in call.keywords
    ]
    return ", ".join(arguments)


def _checkpointed(source: Source, call: ast.Call) -> Proposal | None:
    module, where = source.code(call.func), _name(source, call)
    text = f"checkpoint({module}, {_arguments(source, call)}, use_reentrant=False)"
    title = f"Checkpoint `{module}` in `{where}`: the backward runs its forward again"
    return proposal(
        "checkpoint",
        f"checkpoint {where} {module} {_ordinal(source, call)}",
        title,
        source.replace(call, text),
        *add_import(source, f"from {MODULE} import checkpoint"),
    )


def _ordinal(source: Source, call: ast.Call) -> int:
    """Return how often the function reads the module before this call, checkpointed or not."""
    text, function = source.code(call.func), source.function(call)
    return sum(
        isinstance(node, ast.Name | ast.Attribute)
        and source.code(node) == text
        and (node.lineno, node.col_offset) < (call.lineno, call.col_offset)
        for node in ast.walk(function if function is not None else source.tree)
    )


def _sequential_calls(source: Source, site: Site) -> Iterator[tuple[ast.Call, int]]:
    """Yield calls of an `nn.Sequential` with one argument, with the number of its items."""
    items = {name: fact.length for name, fact in site.names.items() if fact.type_name == "Sequential"}
    for assignment in source.nodes(ast.Assign):
        match assignment:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                value=ast.Call(func=made, args=args),
            ) if source.code(made).rpartition(".")[2] == "Sequential":
                is_starred = any(isinstance(argument, ast.Starred) for argument in args)
                items[f"self.{name}"] = max(SEGMENTS) + 1 if is_starred else len(args)
    for call in source.nodes(ast.Call):
        function = source.code(call.func)
        if function in items and len(call.args) == 1 and not call.keywords and _is_free(source, call):
            yield call, items[function]


def _in_segments(source: Source, call: ast.Call, segments: int) -> Proposal | None:
    module, where = source.code(call.func), _name(source, call)
    text = f"checkpoint_sequential({module}, {segments}, {_arguments(source, call)}, use_reentrant=False)"
    title = f"Checkpoint `{module}` in {segments} segments" + (f" in `{where}`" if where else "")
    return proposal(
        "checkpoint",
        f"checkpoint {where} {module} {_ordinal(source, call)}",
        title,
        source.replace(call, text),
        *add_import(source, f"from {MODULE} import checkpoint_sequential"),
    )
