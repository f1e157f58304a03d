"""Checkpoint a module with buffers, which a second forward would update again.

    x = self.features(x)

becomes a call of a function that is added to the file.  It gives the second forward the buffers that the
first one began with, because spectral norm reads them, and restores those that the first one left.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from aotlens.fit.advice.proposals import Proposal, Site, add_import, proposal
from aotlens.fixes.source import Source

__all__ = ["with_buffers"]

NAME = "checkpoint_once"
HOW = "and updates its buffers once"
IMPORTS = ("import contextlib", "import torch.utils.checkpoint")
FUNCTION = '''
def checkpoint_once(module, *args, **kwargs):
    """Run a module now, and again in the backward; only the first run updates its buffers."""
    buffers, before = list(module.buffers()), []

    def restore(values):
        for buffer, value in zip(buffers, values):
            buffer.data.copy_(value)

    @contextlib.contextmanager
    def first():
        before.extend(buffer.clone() for buffer in buffers)
        yield

    @contextlib.contextmanager
    def second():
        after = [buffer.clone() for buffer in buffers]
        restore(before)
        try:
            yield
        finally:
            restore(after)

    return torch.utils.checkpoint.checkpoint(
        module, *args, use_reentrant=False, context_fn=lambda: (first(), second()), **kwargs
    )
'''


def with_buffers(
    site: Site, source: Source, calls: Iterable[tuple[ast.Call, Proposal | None, str]]
) -> Iterator[Proposal | None]:
    """Yield the edit for calls with their plain checkpoint and arguments; it is run if those are rejected."""
    if not any(row.kind == "buffer" for row in site.fit.by_kind) or not source.imports("torch"):
        return
    for call, plain, arguments in calls:
        if plain is None:
            continue
        module = source.code(call.func)
        replaced = source.replace(call, f"{NAME}({module}, {arguments})")
        function = [] if NAME in source.text else [source.after_imports(f"\n{FUNCTION.strip()}")]
        imports = [edit for line in IMPORTS for edit in add_import(source, line)]
        title = f"{plain.title.partition(':')[0]}: the backward runs its forward again, {HOW}"
        once = proposal("checkpoint", plain.group, title, replaced, *function, *imports)
        yield None if once is None else replace(once, series=f"once {plain.group}")
