"""Contexts around the forward that change how activations are saved.

| context | effect |
|---|---|
| `torch.autograd.graph.save_on_cpu()` | a GPU's activations wait in the host's memory |
| `torch.autocast(…, dtype=torch.bfloat16)` | products and convolutions compute and save in bfloat16 |
"""

import ast
from collections.abc import Iterator
from dataclasses import replace

from aotlens.fit.advice.edits.gradients import owner_of_call
from aotlens.fit.advice.proposals import Proposal, Site, proposal
from aotlens.fit.advice.step import TrainingStep, wrapped

__all__ = ["autocast", "offload"]


def offload(site: Site) -> Iterator[Proposal | None]:
    """Yield `save_on_cpu` around the forward of a script that uses a GPU."""
    step = site.step
    if step is None or not step.forward or site.fit.device == "cpu" or not step.source.imports("torch"):
        return
    edit = wrapped(step.source, _computation(step), "with torch.autograd.graph.save_on_cpu():")
    yield proposal("offload", "offload", "Keep saved activations in the host's memory", edit)


def autocast(site: Site) -> Iterator[Proposal | None]:
    """Yield autocast around the forward of a script that does not use it."""
    step = site.step
    if step is None or not step.forward or not step.source.imports("torch"):
        return
    if any("autocast" in source.text for source in site.sources.values()):
        return
    header = f'with torch.autocast("{site.fit.device}", dtype=torch.bfloat16):'
    edit = wrapped(step.source, _computation(step), header)
    title = "Run the forward under autocast, with activations in bfloat16"
    exact = proposal("autocast", "autocast", title, edit)
    yield None if exact is None else replace(exact, is_exact=False)


def _computation(step: TrainingStep) -> tuple[ast.stmt, ...]:
    """Return the forward without a `zero_grad` at its end, which needs no context."""
    statements = step.forward
    while len(statements) > 1 and owner_of_call(statements[-1], "zero_grad") is not None:
        statements = statements[:-1]
    return statements
