"""Code around a compiled graph, as text: one implementation for this process and for exported modules.

Invariant: inputs are passed and written back as the graph was prepared for, and an output that is a separate
tensor or has its own storage in eager is separate here too.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch

Code = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class GraphAdapter:
    """Positions among the inputs and outputs of a graph that need work around its code."""

    negated: tuple[int, ...]
    """Inputs that are passed as they are in memory, without their negative bit."""
    crossed_writes: tuple[int, ...]
    """Inputs that are written after the graph, from extra outputs that follow the program's own."""
    possibly_in_cat: tuple[int, ...]
    """Outputs that Inductor may compute inside the storage of another."""
    views: tuple[int, ...]
    """Outputs that may be the same tensor as another."""
    updated: tuple[tuple[int, int], ...]
    """Outputs that alias the value written to an input, each with that input's position."""
    copies: tuple[int, ...]
    """Outputs that may share their storage with another of which they are a copy."""
    lazy: tuple[tuple[int, str], ...] = ()
    """Outputs that are returned as they are in memory, each with the view that conjugates or negates it."""

    @property
    def is_needed(self) -> bool:
        """Whether there is any work around the graph's code."""
        return any(getattr(self, positions.name) for positions in fields(self))

    def code(self, code: Code) -> Code:
        """Return the graph's code as the module text calls it."""
        return _load(self, code) if self.is_needed else code


ADAPTER_HELPER = """
def lies_beside(tensor, others):
    storage = tensor.untyped_storage()._cdata
    tensors = (other for other in others if isinstance(other, torch.Tensor))
    return any(other.untyped_storage()._cdata == storage for other in tensors)
"""
"""Module text: a function that tells whether a tensor shares its storage with one of the others."""


def adapter_lines(adapter: GraphAdapter, name: str, code: str) -> list[str]:
    """Return the lines of `def NAME(inputs): …`, which calls `code` with the inputs and does the rest."""
    lines = [f"def {name}(inputs):"]
    if adapter.negated:
        lines.append("    # as they lie in memory, without the negative bit")
    lines += [
        f"    inputs[{index}] = torch.ops.aten._neg_view.default(inputs[{index}])"
        for index in adapter.negated
    ]
    if adapter.crossed_writes:
        lines.append(f"    targets = [{_items('inputs', adapter.crossed_writes)}]")
    if adapter.updated:
        lines.append(
            f"    written = [{_items('inputs', tuple(input_index for _, input_index in adapter.updated))}]"
        )
    lines.append(f"    results = list({code}(inputs))")
    for number, (index, _) in enumerate(adapter.updated):
        lines += _copy_lines(index, f"[written[{number}]]", "what an input got")
    for index in adapter.possibly_in_cat:
        lines += _copy_lines(
            index, f"[other for other in results if other is not results[{index}]]", "part of another"
        )
    for index in adapter.copies:
        lines += _copy_lines(index, f"[*results[:{index}], *results[{index + 1}:]]", "a copy of another")
    for index in adapter.views:
        lines.append(f"    if sum(results[{index}] is other for other in results) > 1:  # a view of another")
        lines.append(f"        results[{index}] = torch.ops.aten.alias.default(results[{index}])")
    if adapter.crossed_writes:
        lines.append("    for target in reversed(targets):  # gets what another input held")
        lines.append("        target.copy_(results.pop())")
    if adapter.lazy:
        lines.append("    # given as they lie in memory")
    lines += [f"    results[{index}] = torch.ops.{view}(results[{index}])" for index, view in adapter.lazy]
    return [*lines, "    return results"]


def _items(source: str, positions: tuple[int, ...]) -> str:
    return ", ".join(f"{source}[{index}]" for index in positions)


def _copy_lines(index: int, others: str, why: str) -> list[str]:
    return [
        f"    if lies_beside(results[{index}], {others}):  # {why}, which are separate in eager",
        f"        results[{index}] = results[{index}].clone()",
    ]


def _load(adapter: GraphAdapter, code: Code) -> Code:
    """Return the function that the text defines, around `code`."""
    namespace: dict[str, Any] = {"__name__": "aotlens_around", "torch": torch, "code": code}
    lines = adapter_lines(adapter, "around", "code")
    exec("\n".join([ADAPTER_HELPER, *lines]), namespace)  # noqa: S102 (our own text)
    return namespace["around"]
