"""Compile the blocks of a model one by one, so that the backward returns gradients of one block at a time.

    compiled = torch.compile(model)

becomes a call of a function that is added to the file.  A graph of the whole model returns all gradients at
its end, so that an update within the backward frees none of them before.
"""

import ast
from collections.abc import Iterator

from aotlens.fit.advice.proposals import Proposal, Site, proposal
from aotlens.fixes.source import Source

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
    for source in site.sources.values():
        if "ModuleList" not in source.text or NAME in source.text or not source.imports("torch"):
            continue
        for call in source.nodes(ast.Call):
            match call:
                case ast.Call(args=[ast.Name(id=model)]) if source.code(call.func) == "torch.compile":
                    yield _by_block(source, call, model)


def _by_block(source: Source, call: ast.Call, model: str) -> Proposal | None:
    return proposal(
        "block compilation",
        f"block compilation {model}",
        f"Compile the blocks of `{model}` one by one, whose gradients then exist one after the other",
        source.replace(call.func, NAME),
        source.after_imports(f"\n{FUNCTION.strip()}"),
    )
