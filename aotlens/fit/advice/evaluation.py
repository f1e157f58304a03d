"""Evaluate in parts of the batch, where the evaluation needs more memory than the training.

    with torch.no_grad():
        logits = model(x)

becomes

    with torch.no_grad():
        logits = torch.cat([model(part) for part in x.chunk(4)])
"""

import ast
from collections.abc import Iterator

from aotlens.fit.advice.proposals import Proposal, Site, proposal
from aotlens.fixes.source import Source

__all__ = ["evaluations_in_parts"]

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
                yield proposal(
                    "evaluation",
                    f"evaluation {source.file}",
                    f"Evaluate without gradients in {parts} parts of the batch",
                    *edits,
                )


def _evaluates(source: Source, site: Site, call: ast.Call) -> bool:
    """Return True for a module's call with one tensor, known by name, where no gradients are recorded."""
    match call:
        case ast.Call(func=ast.Name(id=module), args=[ast.Name(id=batch)], keywords=[]):
            facts = site.names.get(module), site.names.get(batch)
        case _:
            return False
    is_known = facts[0] is not None and facts[0].kind == "module"
    has_rows = facts[1] is not None and facts[1].kind == "tensor" and bool(facts[1].shape)
    return is_known and has_rows and _is_without_gradients(source, call)


def _is_without_gradients(source: Source, call: ast.Call) -> bool:
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
