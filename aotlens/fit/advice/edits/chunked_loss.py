"""Compute head and cross entropy in chunks of rows, so that all logits never exist at once.

    logits = self.head(x)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())

becomes a call of a function that is added to the file, which checkpoints each chunk.
"""

import ast
from collections.abc import Iterator

from aotlens.fit.advice.proposals import Proposal, Site, add_import, proposal
from aotlens.fixes.source import Source

__all__ = ["chunked_losses"]

NAME = "chunked_cross_entropy"
FUNCTION = '''
def chunked_cross_entropy(head, hidden, targets, ignore_index=-100, chunks=8):
    """Return the mean cross entropy of `head(hidden)`, computed in chunks of rows."""

    def chunk_loss(rows, labels):
        return torch.nn.functional.cross_entropy(
            head(rows), labels, ignore_index=ignore_index, reduction="sum"
        )

    hidden, targets = hidden.flatten(0, -2), targets.flatten()
    total = hidden.new_zeros(())
    for rows, labels in zip(hidden.chunk(chunks), targets.chunk(chunks)):
        total = total + torch.utils.checkpoint.checkpoint(chunk_loss, rows, labels, use_reentrant=False)
    return total / (targets != ignore_index).sum()
'''


def chunked_losses(site: Site) -> Iterator[Proposal | None]:
    """Yield the edit for each cross entropy of logits that nothing else reads."""
    for source in site.sources.values():
        if not source.imports("torch") or NAME in source.text:
            continue
        for loss in source.nodes(ast.Call):
            if source.code(loss.func).rpartition(".")[2] == "cross_entropy" and len(loss.args) == 2:
                yield _chunked(source, loss)


def _chunked(source: Source, loss: ast.Call) -> Proposal | None:
    keywords = {keyword.arg: source.code(keyword.value) for keyword in loss.keywords}
    statement = source.statement(loss)
    head = _head(source, loss)
    if statement is None or head is None or keywords.keys() - {"ignore_index"}:
        return None
    assignment, call = head
    arguments = [source.code(call.func), source.code(call.args[0]), source.code(loss.args[1])]
    arguments += [f"{name}={value}" for name, value in keywords.items()]
    return proposal(
        "chunked loss",
        f"chunked loss {source.code(call.func)}",
        f"Compute `{source.code(call.func)}` and its cross entropy in 8 chunks, each checkpointed",
        source.replace(loss, f"{NAME}({', '.join(arguments)})"),
        source.delete(assignment),
        source.after_imports(f"\n{FUNCTION.strip()}"),
        *add_import(source, "import torch.utils.checkpoint"),
    )


def _head(source: Source, loss: ast.Call) -> tuple[ast.Assign, ast.Call] | None:
    """Return `logits = head(x)` if only the loss reads the logits."""
    names = {node.id for node in ast.walk(loss.args[0]) if isinstance(node, ast.Name)}
    function = source.function(loss)
    if len(names) != 1 or function is None:
        return None
    (logits,) = names
    inside = set(ast.walk(loss))
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == logits]
    statements = [source.statement(node) for node in uses if node not in inside]
    match statements:
        case [ast.Assign(targets=[ast.Name()], value=ast.Call(args=[_], keywords=[]) as call) as assignment]:
            return assignment, call
    return None
