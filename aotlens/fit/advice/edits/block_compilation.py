"""Compile the modules of a model one by one, so that its gradients do not all exist at once.

    compiled = torch.compile(model)

becomes a call of a function that is added to the file.  A graph of the whole model returns all gradients at
its end: updates within the backward free none of them before, and where gradients accumulate, each has a
second one beside it.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace

from aotlens.fit.advice.edits.step_in_backward import steps_in_backward
from aotlens.fit.advice.proposals import Proposal, Site, proposal
from aotlens.fixes.source import Source
from aotlens.model.source import Edit

__all__ = ["block_compilations"]

NAME = "compile_blocks"
FUNCTION = f'''
def {NAME}(model, **options):
    """Compile the modules of a model one by one, instead of the whole model, and return it."""
    lists = torch.nn.ModuleList, torch.nn.ModuleDict
    for child in model.children():
        if isinstance(child, torch.nn.Sequential) or any(isinstance(each, lists) for each in child.modules()):
            {NAME}(child, **options)
        else:  # not `child.compile()`, which compiles nothing for torch's own modules
            child.forward = torch.compile(child.forward, **options)
    return model
'''


def block_compilations(site: Site) -> Iterator[Proposal | None]:
    """Yield the edit for each model that is compiled, alone and with updates within the backward."""
    updates = list(filter(None, steps_in_backward(site)))
    for source in site.sources.values():
        if NAME in source.text or not source.imports("torch"):
            continue
        for call in source.nodes(ast.Call):
            match call:
                case ast.Call(args=[ast.Name(id=name)]) if source.code(
                    call.func
                ) == "torch.compile" and _has_submodules(site, name):
                    yield from _by_block(source, call, name, updates)


def _has_submodules(site: Site, name: str) -> bool:
    """Return False for a function, and for a module without others; a name elsewhere may be of a model."""
    fact = site.names.get(name)
    return fact is None or (fact.kind == "module" and fact.has_submodules)


def _by_block(
    source: Source, call: ast.Call, model: str, updates: list[Proposal]
) -> Iterator[Proposal | None]:
    function = source.after_imports(f"\n{FUNCTION.strip()}")
    if function is None:
        return
    edits: tuple[Edit, ...] = (source.replace(call.func, NAME), function)
    kind, group = "block compilation", f"block compilation {model}"
    yield proposal(kind, group, f"Compile the modules of `{model}` one by one", *edits)
    for update in updates:
        title = f"{update.title.partition(',')[0]}, with the modules of `{model}` compiled one by one"
        yield replace(update, title=title, edits=(*update.edits, *edits))
