"""Free gradients and forward values earlier.

| source | edit |
|---|---|
| `zero_grad(set_to_none=False)` | `zero_grad()` |
| `zero_grad()` between forward and backward | before the forward, or after `step()` |
| `logits = model(x)`, `loss = f(logits)`, `loss.backward()` | `del logits` before the backward |
| `for …: loss = f(model(x))` and so on | `del loss` at the end of the iteration |
"""

import ast
from collections.abc import Iterator

from aotlens.fit.advice.proposals import Proposal, Site, proposal
from aotlens.fit.advice.step import TrainingStep, names_in
from aotlens.fixes.source import Source
from aotlens.model.source import Edit, Span

__all__ = ["deletions", "end_deletions", "gradients_to_none", "moved_zero_grad", "owner_of_call"]


def gradients_to_none(site: Site) -> Iterator[Proposal | None]:
    """Yield the removal of `set_to_none=False`."""
    for source in site.sources.values():
        for call in _zero_grad_calls(source):
            keywords = [keyword for keyword in call.keywords if keyword.arg == "set_to_none"]
            if keywords and _is_false(keywords[0].value):
                name = source.code(call.func)
                edit = source.replace(keywords[0].value, "True")
                title = f"Let `{name}` release the gradients instead of filling them with zeros"
                yield proposal("set_to_none", f"set_to_none {name}", title, edit)


def _zero_grad_calls(source: Source) -> Iterator[ast.Call]:
    for node in source.nodes(ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "zero_grad":
            yield node


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def moved_zero_grad(site: Site) -> Iterator[Proposal | None]:
    """Yield moves of `zero_grad` from after the forward to after `step`, or to before the forward."""
    step = site.step
    if step is None:
        return
    for statement in step.forward:
        owner = owner_of_call(statement, "zero_grad")
        if owner is None:
            continue
        text = step.source.code(statement)
        deleted = step.source.delete(statement)
        group = f"zero_grad {owner}"
        before = step.source.insert_before(step.block[step.first], text)
        if statement is not step.block[step.first]:
            title = f"Call `{owner}.zero_grad()` before the forward, which needs no gradients"
            yield proposal("zero_grad", group, title, deleted, before)
        index = _step_call(step, owner)
        if index is not None and index + 1 < len(step.block):
            after = step.source.insert_before(step.block[index + 1], text)
            title = f"Call `{owner}.zero_grad()` directly after its `step()`"
            yield proposal("zero_grad", group, title, deleted, after)


def owner_of_call(statement: ast.stmt, method: str) -> str | None:
    """Return `optimizer` of the statement `optimizer.zero_grad()`."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attribute))):
            return name if attribute == method else None
    return None


def _step_call(step: TrainingStep, owner: str) -> int | None:
    """Return the index of the statement that calls the optimizer's `step`."""
    for index in range(step.last + 1, len(step.block)):
        for node in ast.walk(step.block[index]):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="step")) if name == owner:
                    return index
                case ast.Call(func=ast.Attribute(attr="step"), args=[ast.Name(id=name)]) if name == owner:
                    return index
    return None


def deletions(site: Site) -> Iterator[Proposal | None]:
    """Yield `del` for forward values that nothing reads after the loss is computed."""
    step = site.step
    if step is None or not step.forward:
        return
    read = names_in(step.backward, ast.Load)
    stored = set().union(*(names_in(statement, ast.Store) for statement in step.forward))
    values = sorted(
        name
        for name in stored - read
        if name in site.names and site.names[name].kind == "tensor" and not step.is_read_after(name)
    )
    if values:
        names = ", ".join(values)
        edit = step.source.insert_before(step.backward, f"del {names}")
        title = f"Delete `{names}` before the backward, which saves what it needs itself"
        yield proposal("del", "del", title, edit)


def end_deletions(site: Site) -> Iterator[Proposal | None]:
    """Yield `del` at the end of an iteration for what its step assigned: the next forward runs without it."""
    step = site.step
    if step is None or not step.forward or not _is_body_of_loop(step):
        return
    assigned = [statement for statement in step.forward if isinstance(statement, ast.Assign)]
    values = sorted(name for name in set().union(*map(_targets, assigned)) if _is_local(step, name))
    last = step.block[-1]
    if values and step.source.indent(last) is not None:
        line = (last.end_lineno or last.lineno) + 1
        text = f"{step.source.indent(last)}del {', '.join(values)}\n"
        edit = Edit(Span(step.source.file, line, 0, line, 0), text)
        title = "Delete the results of a step at its end, so that the next forward runs without them"
        yield proposal("del at the end", "del at the end", title, edit)


def _is_body_of_loop(step: TrainingStep) -> bool:
    parent = step.source.parents.get(step.backward)
    return isinstance(parent, ast.For | ast.While) and step.backward in parent.body


def _targets(statement: ast.stmt) -> set[str]:
    return names_in(statement, ast.Store)


def _is_local(step: TrainingStep, name: str) -> bool:
    """Return True if only the statements from the step to the end of the iteration use a name."""
    last = step.block[-1]
    lines = range(step.block[step.first].lineno, (last.end_lineno or last.lineno) + 1)
    uses = [node for node in ast.walk(step.source.tree) if isinstance(node, ast.Name) and node.id == name]
    scope = [node for node in uses if step.source.function(node) is step.source.function(step.backward)]
    is_deleted = any(isinstance(node.ctx, ast.Del) for node in scope)
    return not is_deleted and all(node.lineno in lines for node in scope)
