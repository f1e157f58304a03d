"""Split the batch into micro batches, whose gradients accumulate.

    loss = f(model(x), y)
    loss.backward()

becomes

    loss_total = 0
    for x_part, y_part in zip(x.chunk(2), y.chunk(2)):
        loss = f(model(x_part), y_part)
        loss = loss * len(x_part) / len(x)
        loss.backward()
        loss_total += loss.detach() * len(x_part) / len(x)
    loss = loss_total

A cross entropy that ignores some targets becomes a sum, divided by the number of all targets that count.
Tensors with one row for each sample that are read later, such as logits, are concatenated instead.  A batch
may also be a dict or list of tensors.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from aotlens.fit.advice.edits.counted_targets import counted_loss
from aotlens.fit.advice.edits.gradients import owner_of_call
from aotlens.fit.advice.jobs import NameFact
from aotlens.fit.advice.proposals import Proposal, Site, proposal
from aotlens.fit.advice.step import INDENT, TrainingStep, backward_calls, lines_of, names_in
from aotlens.fixes.source import Source
from aotlens.model.edits import edited
from aotlens.model.source import Edit, Span

__all__ = ["micro_batches"]

PARTS = (2, 4, 8, 16)
Weights = Literal["sizes", "counted", "none"]
WEIGHTS: dict[Weights, str] = {
    "sizes": "weighted by their sizes",
    "counted": "divided by the targets of the whole batch that count",
    "none": "added up",
}
"""How the losses of micro batches add up to that of the batch, in words: those of a mean, of a cross entropy
that ignores some targets, and of a sum."""
BATCHES = ("tensor", "tensors")
MOST_SIZES = 3
"""First sizes that are tried as that of the batch."""


def micro_batches(site: Site) -> Iterator[Proposal | None]:
    """Yield loops over parts of the batch, for a loss that is a mean or a sum over the batch."""
    step = site.step
    if step is None:
        return
    for index, batch in enumerate(_batches(site, step)):
        names = ", ".join(f"`{name}`" for name in batch)
        for weights, how in WEIGHTS.items():
            for parts in PARTS:
                of = f" of {names}" if index else ""
                title = f"Accumulate the gradients of {parts} micro batches{of}, {how}"
                split = _accumulated(site, step, batch, (parts, weights))
                series = f"micro batches of {names}, {weights}"
                yield None if split is None else replace(split, title=title, series=series)


def _batches(site: Site, step: TrainingStep) -> Iterator[tuple[str, ...]]:
    """Yield the tensors that the step reads and does not train, by equal first size, most names first.

    The last group are those of all sizes, which split alike: `returns` of 16 steps by 8 agents belong to the
    128 rows of `returns.flatten()`.
    """
    stored = set().union(*(names_in(statement, ast.Store) for statement in step.statements))
    read = set().union(*(names_in(statement, ast.Load) for statement in step.statements)) - stored
    by_size: dict[int, list[str]] = {}
    for name in sorted(read):
        fact = site.names.get(name)
        if fact is not None and fact.kind in BATCHES and not _is_trained(fact) and fact.shape:
            by_size.setdefault(fact.shape[0], []).append(name)
    sizes = sorted(by_size.items(), key=lambda row: -len(row[1]))
    for size, names in sizes[:MOST_SIZES]:
        if size >= min(PARTS):
            yield tuple(names)
    together = [name for size, names in sizes if size >= min(PARTS) for name in names]
    if len({site.names[name].shape[0] for name in together}) > 1:
        yield tuple(together)


def _is_trained(fact: NameFact) -> bool:
    """Return True for parameters; an input may require a gradient, which adds up over the parts."""
    return fact.requires_grad and (fact.kind == "tensors" or fact.type_name == "Parameter")


def _accumulated(
    site: Site, step: TrainingStep, batch: Sequence[str], how: tuple[int, Weights]
) -> Proposal | None:
    """Return the loop over parts of a batch, without a title; None if a value of the step does not add up."""
    source, statements = step.source, step.statements
    parts, weights = how
    loss = _loss(step)
    counted = counted_loss(step) if weights == "counted" else None
    if (weights == "counted" and counted is None) or not _splits_evenly(site, batch, parts):
        return None
    stored = set().union(*(names_in(statement, ast.Store) for statement in statements))
    used = sorted(name for name in stored if step.is_read_after(name))
    indent = source.indent(statements[0])
    is_indented = indent is not None and source.indent(statements[-1]) == indent
    if loss is None or not is_indented or not all(_is_number_or_tensor(site, name) for name in used):
        return None
    first = batch[0]
    rows = {name for name in used if _shape(site, name)[:1] == _shape(site, first)[:1]}
    if rows and not source.imports("torch"):
        return None
    row = site.names[first].first
    share = f" * len({first}_part{row}) / len({first}{row})" if weights == "sizes" else ""
    zeroed = [statement for statement in statements if owner_of_call(statement, "zero_grad") is not None]
    edits = [*(_scaled(source, loss, share) if share else ()), *(counted.edits if counted else ())]
    body = _body(step, batch, zeroed, edits)
    before = [source.code(statement) for statement in zeroed]
    before += [counted.statement] if counted else []
    before += [_empty(site.names[name], is_row=name in rows) for name in used]
    inside = [_collected(site, name, share, is_row=name in rows) for name in used]
    after = [_whole(name, is_row=name in rows) for name in used]
    text = "".join(f"{indent}{line}\n" for line in (*before, _loop(site, batch, parts))) + body
    text += "".join(f"{indent}{INDENT}{line}\n" for line in inside)
    text += "".join(f"{indent}{line}\n" for line in after)
    span = lines_of(source, statements[0], statements[-1])
    return proposal("gradient accumulation", "gradient accumulation", "", Edit(span, text))


def _splits_evenly(site: Site, batch: Sequence[str], parts: int) -> bool:
    """Return True if the parts of all names of the batch have the same rows."""
    sizes = {site.names[name].shape[0] for name in batch}
    return len(sizes) == 1 or not any(size % parts for size in sizes)


def _loop(site: Site, batch: Sequence[str], parts: int) -> str:
    """Return the `for` over the parts of a batch."""
    chunks = [_chunks(site.names[name], parts) for name in batch]
    if len(batch) == 1:
        return f"for {batch[0]}_part in {chunks[0]}:"
    return f"for {', '.join(f'{name}_part' for name in batch)} in zip({', '.join(chunks)}):"


def _chunks(fact: NameFact, parts: int) -> str:
    """Return the expression whose items are the parts of a batch."""
    name = fact.name
    if fact.kind == "tensor":
        return f"{name}.chunk({parts})"
    if fact.first == "[0]":
        return f"zip(*(rows.chunk({parts}) for rows in {name}))"
    values = f"zip(*(rows.chunk({parts}) for rows in {name}.values()))"
    return f"(dict(zip({name}, parts)) for parts in {values})"


def _loss(step: TrainingStep) -> ast.expr | None:
    """Return the loss in the statement that calls the backward: its receiver, or its argument."""
    call = next(backward_calls(step.backward), None)
    if call is None or not isinstance(call.func, ast.Attribute):
        return None
    return call.args[0] if call.args else call.func.value


def _scaled(source: Source, loss: ast.expr, share: str) -> list[Edit]:
    """Multiply the loss in place; names in it may be edited too, so that nothing of it is replaced."""
    span = source.span(loss)
    is_receiver = isinstance(source.parents.get(loss), ast.Attribute)
    before, after = ("(", f"{share})") if is_receiver else ("", share)
    if source.grouped(loss) != source.code(loss):  # a receiver like this is in parentheses already
        before, after = "(", f"){share}"
    return [
        Edit(Span(span.file, span.line, span.col, span.line, span.col), before),
        Edit(Span(span.file, span.end_line, span.end_col, span.end_line, span.end_col), after),
    ]


def _is_number_or_tensor(site: Site, name: str) -> bool:
    fact = site.names.get(name)
    return fact is not None and fact.kind in ("tensor", "number", "numbers")


def _shape(site: Site, name: str) -> tuple[int, ...]:
    fact = site.names.get(name)
    return () if fact is None else fact.shape


def _empty(fact: NameFact, *, is_row: bool) -> str:
    """Return the statement before the loop for a value that is read after it: no rows, or a sum of 0."""
    if is_row:
        return f"{fact.name}_rows = []"
    total = "{}" if fact.kind == "numbers" else "0"
    return f"{fact.name}_total = {total}"


def _collected(site: Site, name: str, share: str, *, is_row: bool) -> str:
    """Return the statement that collects a value of a micro batch, which is read after the loop."""
    fact = site.names[name]
    if fact.kind == "numbers":
        detached = ".detach()" if fact.type_name == "Tensor" else ""
        added = f"{name}_total.get(key, 0) + value{detached}{share}"
        return f"{name}_total = {{key: {added} for key, value in {name}.items()}}"
    value = f"{name}.detach()" if fact.kind == "tensor" else name
    return f"{name}_rows.append({value})" if is_row else f"{name}_total += {value}{share}"


def _whole(name: str, *, is_row: bool) -> str:
    """Return the statement after the loop that gives a value its own name again."""
    return f"{name} = torch.cat({name}_rows)" if is_row else f"{name} = {name}_total"


def _body(
    step: TrainingStep, batch: Sequence[str], left_out: Sequence[ast.stmt], loss_edits: Sequence[Edit]
) -> str:
    """Return the statements with the parts in place of the batch, indented."""
    source, lines = step.source, []
    for statement in step.statements:
        if statement in left_out:
            continue
        edits = [
            source.replace(node, f"{node.id}_part")
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and node.id in batch
        ]
        edits += [edit for edit in loss_edits if source.span(statement).holds(edit.span)]
        text = source.between(lines_of(source, statement, statement))
        text = edited(text, [_moved(edit, 1 - statement.lineno) for edit in edits])
        lines += [INDENT + row if row.strip() else row for row in text.splitlines(keepends=True)]
    return "".join(lines)


def _moved(edit: Edit, lines: int) -> Edit:
    span = edit.span
    return Edit(Span(span.file, span.line + lines, span.col, span.end_line + lines, span.end_col), edit.text)
