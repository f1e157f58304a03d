"""Recompute the activations of modules in the backward.

| source | edit |
|---|---|
| `for block in self.blocks: x = block(x)` | `checkpoint(block, x, use_reentrant=False)` |
| `self.encoder(x)`, or `model(x)` in the step, for a module with submodules | the same |
| `self.features(x)` for an `nn.Sequential` | also `checkpoint_sequential(self.features, 2, x, …)` |
| `checkpoint_sequential(self.features, 2, x, …)` | more segments |
| `checkpoint(…)` | without the state of the random number generators, which is 5 KiB on the CPU |
| `checkpoint(…, use_reentrant=True)` | `use_reentrant=False`: one backward runs all of it |
| each of the calls, where that updates buffers twice | `checkpoint_once(self.features, x)` |
"""

import ast
from collections.abc import Iterator

from aotlens.fit.advice.edits.checkpoints_once import with_buffers
from aotlens.fit.advice.edits.module_calls import (
    arguments_of,
    group_of,
    is_free,
    module_calls,
    title_of,
    where,
)
from aotlens.fit.advice.proposals import Proposal, Site, add_import, add_keywords, proposal
from aotlens.fixes.source import Source

__all__ = ["checkpoints"]

SEGMENTS = (2, 3, 4)
MODULE = "torch.utils.checkpoint"


def checkpoints(site: Site) -> Iterator[Proposal | None]:
    """Yield checkpoints around calls of modules, the calls in loops first."""
    for source in site.sources.values():
        calls = module_calls(source, site)
        plain = [_checkpointed(source, call) for call in calls]
        yield from plain
        for call, items in _sequential_calls(source, site):
            for segments in SEGMENTS:
                if segments < items:
                    yield _in_segments(source, call, segments)
        for call in source.nodes(ast.Call):
            yield _in_more_segments(source, call)
        yield _without_random_state(source)
        yield _not_reentrant(source)
        arguments = [arguments_of(source, call) for call in calls]
        yield from with_buffers(site, source, zip(calls, plain, arguments, strict=True))


def _checkpointed(source: Source, call: ast.Call) -> Proposal | None:
    text = f"checkpoint({source.code(call.func)}, {arguments_of(source, call)}, use_reentrant=False)"
    return proposal(
        "checkpoint",
        group_of(source, call),
        f"Checkpoint {title_of(source, call)}: the backward runs its forward again",
        source.replace(call, text),
        *add_import(source, f"from {MODULE} import checkpoint"),
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
        if function in items and len(call.args) == 1 and not call.keywords and is_free(source, call):
            yield call, items[function]


def _in_segments(source: Source, call: ast.Call, segments: int) -> Proposal | None:
    module, inside = source.code(call.func), where(source, call)
    text = f"checkpoint_sequential({module}, {segments}, {arguments_of(source, call)}, use_reentrant=False)"
    title = f"Checkpoint `{module}` in {segments} segments" + (f" in `{inside}`" if inside else "")
    return proposal(
        "checkpoint",
        group_of(source, call),
        title,
        source.replace(call, text),
        *add_import(source, f"from {MODULE} import checkpoint_sequential"),
    )


def _in_more_segments(source: Source, call: ast.Call) -> Proposal | None:
    """Return the edit of a checkpoint in few segments: each needs less memory when it runs again."""
    match call:
        case ast.Call(args=[module, ast.Constant(value=int(segments)) as number, _]) if (
            source.code(call.func).rpartition(".")[2] == "checkpoint_sequential"
        ):
            more = 2 * segments
            name, inside = source.code(module), where(source, call)
            title = f"Checkpoint `{name}` in {more} segments instead of {segments}"
            title += f" in `{inside}`" if inside else ""
            return proposal("checkpoint", f"segments {name}", title, source.replace(number, str(more)))
    return None


def _without_random_state(source: Source) -> Proposal | None:
    """Return the edit of all checkpoints of a file, which is equal where they use no random numbers."""
    calls = [
        call
        for call in _checkpoint_calls(source)
        if "preserve_rng_state" not in {keyword.arg for keyword in call.keywords}
    ]
    is_nested = any(other is not call and other in ast.walk(call) for call in calls for other in calls)
    if is_nested:
        return None
    title = (
        "Let the checkpoints save no state of random number generators, because they use no random numbers"
    )
    edits = [
        source.replace(call, add_keywords(source.code(call), {"preserve_rng_state": "False"}))
        for call in calls
    ]
    return proposal("random state", f"random state {source.file}", title, *edits)


def _not_reentrant(source: Source) -> Proposal | None:
    """Return the edit of all reentrant checkpoints of a file: each runs a backward of its own, after which
    hooks of parameters see a part of their gradient."""
    values = [
        keyword.value
        for call in _checkpoint_calls(source)
        for keyword in call.keywords
        if keyword.arg == "use_reentrant" and source.code(keyword.value) == "True"
    ]
    title = "Let the checkpoints run without a backward of their own (`use_reentrant=False`)"
    edits = [source.replace(value, "False") for value in values]
    return proposal("checkpoint", f"use_reentrant {source.file}", title, *edits)


def _checkpoint_calls(source: Source) -> Iterator[ast.Call]:
    for call in source.nodes(ast.Call):
        if source.code(call.func).rpartition(".")[2] in ("checkpoint", "checkpoint_sequential") and call.args:
            yield call
