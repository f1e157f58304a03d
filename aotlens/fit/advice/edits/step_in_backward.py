"""Update each parameter within the backward, so that not all gradients exist at once.

    optimizer = torch.optim.AdamW(model.parameters())

is followed by a call of a function that is added to the file.  `optimizer.step()` stays, and finds no
gradients.
"""

import ast
from collections.abc import Iterator

from aotlens.fit.advice.edits.optimizers import constructors
from aotlens.fit.advice.proposals import Proposal, Site, proposal
from aotlens.fixes.source import Source
from aotlens.model.source import Edit, Span

__all__ = ["steps_in_backward"]

NAME = "step_in_backward"
FUNCTION = '''
def step_in_backward(optimizer):
    """Update each parameter as soon as its gradient is complete, and release the gradient.

    `optimizer.step()` then finds no gradients. Its options and its state remain those of all parameters.
    """

    def options(group):
        return {name: value for name, value in group.items() if name != "params"}

    for group in optimizer.param_groups:
        for parameter in group["params"]:
            single = type(optimizer)([{**options(group), "params": [parameter]}])
            single.state = optimizer.state

            def update(parameter, single=single, group=group):
                single.param_groups[0].update(options(group))
                single.step()
                parameter.grad = None

            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(update)
'''
NOT_EQUAL = ("clip_grad", "GradScaler", "LBFGS")
"""What needs all gradients at once: a file with these words gets no proposal."""


def steps_in_backward(site: Site) -> Iterator[Proposal | None]:
    """Yield the edit for each optimizer that a name is assigned to."""
    if any(word in source.text for word in NOT_EQUAL for source in site.sources.values()):
        return
    for source in site.sources.values():
        if NAME in source.text:
            continue
        for call, _ in constructors(source, site):
            match source.parents.get(call):
                case ast.Assign(targets=[ast.Name(id=name)], value=value) as statement if value is call:
                    yield _in_backward(source, statement, name)


def _in_backward(source: Source, statement: ast.Assign, name: str) -> Proposal | None:
    indent = source.indent(statement)
    if indent is None:
        return None
    line = (statement.end_lineno or statement.lineno) + 1
    return proposal(
        "step in backward",
        f"step in backward {name}",
        f"Let `{name}` update each parameter within the backward, and release its gradient at once",
        Edit(Span(source.file, line, 0, line, 0), f"{indent}{NAME}({name})\n"),
        source.after_imports(f"\n{FUNCTION.strip()}"),
    )
