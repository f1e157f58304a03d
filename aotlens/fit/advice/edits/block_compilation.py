"""Compile the blocks of a model one by one, so that updates within the backward free gradients early.

    compiled = torch.compile(model)

becomes a call of a function that is added to the file, together with the edit of `step_in_backward`.  A graph
of the whole model returns all gradients at its end, so that the updates alone free none of them before.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace

from aotlens.fit.advice.edits.step_in_backward import steps_in_backward
from aotlens.fit.advice.proposals import Proposal, Site
from aotlens.fixes.source import Source
from aotlens.model.source import Edit

__all__ = ["block_compilations"]

NAME = "compile_blocks"
FUNCTION = f'''
def {NAME}(model, **options):
    """Compile the modules of each `ModuleList` of a model, instead of the whole model, and return it."""
    for blocks in model.modules():
        if isinstance(blocks, torch.nn.ModuleList):
            for block in blocks:
                block.compile(**options)
    return model
'''


def block_compilations(site: Site) -> Iterator[Proposal | None]:
    """Yield the edit for each model that a file with a `ModuleList` passes to `torch.compile`."""
    for update in filter(None, steps_in_backward(site)):
        for source in site.sources.values():
            if "ModuleList" not in source.text or NAME in source.text or not source.imports("torch"):
                continue
            for call in source.nodes(ast.Call):
                match call:
                    case ast.Call(args=[ast.Name(id=model)]) if source.code(call.func) == "torch.compile":
                        yield _by_block(source, call, model, update)


def _by_block(source: Source, call: ast.Call, model: str, update: Proposal) -> Proposal | None:
    function = source.after_imports(f"\n{FUNCTION.strip()}")
    if function is None:
        return None
    edits: tuple[Edit, ...] = (*update.edits, source.replace(call.func, NAME), function)
    title = f"{update.title.partition(',')[0]}, with the blocks of `{model}` compiled one by one"
    return replace(update, title=title, edits=edits)
