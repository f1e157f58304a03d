"""Select, after the run, which overlapping inputs the graph takes as views of their synthetic base.

Invariant: a member that the graph takes itself gets its own gradient only.
"""

from dataclasses import replace
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from aotlens.capture.autograd.graph_walk import autograd_nodes, grad_fn_of
from aotlens.capture.graph import TRACKED_ATTRIBUTE, Recording
from aotlens.capture.inputs.synthetic_bases import BaseGroup, block_gradients
from aotlens.capture.records import OpenInput, SyntheticBaseOf
from aotlens.unsupported import unsupported


def inputs_with_bases(
    recording: Recording,
    inputs: tuple[OpenInput, ...],
    base_groups: tuple[BaseGroup, ...],
    results: list[Any],
) -> tuple[tuple[OpenInput, ...], tuple[SyntheticBaseOf, ...]]:
    """Return the inputs after the run; groups that use their base are replaced by it."""
    new_inputs, bases = list(inputs), []
    for base_group in base_groups:
        storage, group = base_group.base.storage, base_group.group
        _reject_base_read(recording, base_group, results)
        if (
            storage is not None
            and storage.metadata_mutations
            and _reaches_custom_function(base_group, results)
        ):
            recording.use_synthetic_base(storage)
        if storage is None or not storage.on_base:
            _block_base_gradient(base_group)
            continue
        base_index = group.root_member if group.root_member is not None else len(new_inputs)
        if group.root_member is None:
            new_inputs.append(replace(base_group.base, slot=replace(base_group.base.slot, index=base_index)))
        for index in group.members:
            if index != group.root_member:
                new_inputs[index] = replace(new_inputs[index], base=base_index)
        bases.append(SyntheticBaseOf(base_index, group.members, group.kind))
    return tuple(new_inputs), tuple(bases)


def _reject_base_read(recording: Recording, base_group: BaseGroup, results: list[Any]) -> None:
    """Reject a read of a base that is not an argument; autograd also reads it after a mutation."""
    base, storage = base_group.base, base_group.base.storage
    if base_group.group.root_member is not None or storage is None:
        return
    is_unchanged = not storage.on_base and not storage.metadata_mutations
    is_read = is_unchanged and any(node is base.node for read in recording.nodes for node in read.inputs())
    if is_read or any(value is base.argument for value in results):
        names = ", ".join(f"`{captured_input.slot.name}`" for captured_input in base_group.members.values())
        raise unsupported("base-is-no-argument", recording.span, inputs=names)


def _reaches_custom_function(base_group: BaseGroup, results: list[Any]) -> bool:
    """Return True if a custom function took a member with a regenerated grad_fn, or returned a view of one.

    It receives its arguments before any operator records them.
    """
    input_nodes = set[Any]()
    for value in (value for value in results if isinstance(value, torch.Tensor)):
        nodes = autograd_nodes([grad_fn_of(value)])
        functions = [node for node in nodes if isinstance(node, BackwardCFunction)]
        if functions and _is_on(base_group, value):
            return True
        input_nodes |= {node for function in functions for node, _ in function.next_functions}
    views = (
        captured_input
        for captured_input in base_group.members.values()
        if captured_input.argument._base is not None
    )
    return bool(input_nodes) and any(
        grad_fn_of(captured_input.argument) in input_nodes - {captured_input.grad_fn}
        for captured_input in views
    )


def _is_on(base_group: BaseGroup, value: Any) -> bool:
    tracked = getattr(value, TRACKED_ATTRIBUTE, None)
    return tracked is not None and tracked.storage is base_group.base.storage


def _block_base_gradient(base_group: BaseGroup) -> None:
    """Exclude unwritten members from the base's gradient: each is a graph input of its own."""
    for index, captured_input in base_group.members.items():
        if (
            index != base_group.group.root_member
            and captured_input.leaf is not None
            and not captured_input.has_own_edge
        ):
            captured_input.leaf.node.register_prehook(block_gradients)
