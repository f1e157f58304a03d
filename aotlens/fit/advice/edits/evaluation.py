"""Evaluate with less memory than the training needs.

| source | edit |
|---|---|
| `logits = model(x)` in `with torch.no_grad()` | `torch.cat([model(part) for part in x.chunk(4)])` |
| `accuracy = f(model(x))` after the optimizer's step | `with torch.no_grad():` around it |
"""

import ast
from collections.abc import Iterator
from dataclasses import replace

from aotlens.fit.advice.proposals import Proposal, Site, proposal
from aotlens.fit.advice.step import wrapped
from aotlens.fixes.source import Source

__all__ = ["evaluations_in_parts", "evaluations_without_gradients", "is_without_gradients"]

PARTS = (4, 16)
WITHOUT_GRADIENTS = ("no_grad", "inference_mode")


def evaluations_in_parts(site: Site) -> Iterator[Proposal | None]:
    """Yield parts for all calls of modules without gradients, if an evaluation belongs to the step."""
    if not any(row.phase == "evaluation" for row in site.fit.phases):
        return
    for source in site.sources.values():
        calls = [call for call in source.nodes(ast.Call) if _evaluates(source, site, call)]
        for parts in PARTS:
            if calls and source.imports("torch"):
                edits = [source.replace(call, _in_parts(source, call, parts)) for call in calls]
                title = f"Evaluate without gradients in {parts} parts of the batch"
                split = proposal("evaluation", f"evaluation {source.file}", title, *edits)
                yield None if split is None else replace(split, phases=("evaluation",))


def evaluations_without_gradients(site: Site) -> Iterator[Proposal | None]:
    """Yield `no_grad` around statements after the step that run a module and record gradients."""
    step = site.step
    if step is None or not step.source.imports("torch"):
        return
    for statement in step.block[step.last + 1 :]:
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
        is_step = any(isinstance(call.func, ast.Attribute) and call.func.attr == "backward" for call in calls)
        if is_step or not any(_runs_module(step.source, site, call) for call in calls):
            continue
        edit = wrapped(step.source, (statement,), "with torch.no_grad():")
        title = "Evaluate after the step without recording gradients"
        yield proposal("no_grad", f"no_grad {step.source.code(statement)}", title, edit)


def _runs_module(source: Source, site: Site, call: ast.Call) -> bool:
    fact = site.names.get(call.func.id) if isinstance(call.func, ast.Name) else None
    is_module = fact is not None and fact.kind == "module"
    return is_module and not is_without_gradients(source, call)


def _evaluates(source: Source, site: Site, call: ast.Call) -> bool:
    """Return True for a module's call with one tensor, known by name, where no gradients are recorded."""
    match call:
        case ast.Call(func=ast.Name(id=module), args=[ast.Name(id=batch)], keywords=[]):
            facts = site.names.get(module), site.names.get(batch)
        case _:
            return False
    is_known = facts[0] is not None and facts[0].kind == "module"
    has_rows = facts[1] is not None and facts[1].kind == "tensor" and bool(facts[1].shape)
    return is_known and has_rows and is_without_gradients(source, call)


def is_without_gradients(source: Source, call: ast.Call) -> bool:
    """Return True for a call within `no_grad` or `inference_mode`."""
    contexts: list[ast.expr] = []
    for node in source.ancestors(call):
        if isinstance(node, ast.With):
            contexts += [item.context_expr for item in node.items]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            contexts += node.decorator_list
    return any(word in source.code(context) for word in WITHOUT_GRADIENTS for context in contexts)


def _in_parts(source: Source, call: ast.Call, parts: int) -> str:
    batch = source.code(call.args[0])
    return f"torch.cat([{source.code(call.func)}(part) for part in {batch}.chunk({parts})])"
