"""Overlapping inputs once the function has run: which of them the graph takes as views of their base.

Invariant: a member that the graph takes by itself gets its own gradient and no other's; one whose gradient
would be lost on the way is refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge

from aotlens.capture.autograd.graph_walk import autograd_nodes, grad_fn_of
from aotlens.capture.graph import TRACKED_ATTRIBUTE, Recording
from aotlens.capture.inputs.synthetic_bases import BaseGroup, has_other_grad_fn, no_group
from aotlens.capture.records import CapturedInput, SyntheticBaseOf
from aotlens.errors import UnsupportedError


def inputs_with_bases(
    tape: Recording, inputs: tuple[CapturedInput, ...], joined: tuple[BaseGroup, ...], results: list[Any]
) -> tuple[tuple[CapturedInput, ...], tuple[SyntheticBaseOf, ...]]:
    """The inputs after the run: a group that has become views of its base is given to the graph as that."""
    found, bases = list(inputs), []
    for one in joined:
        storage, group = one.base.storage, one.group
        _refuse_read(tape, one, results)
        if storage is not None and storage.moves and _meets_function(one, results):
            tape.join(storage)
        if storage is not None and one.hidden_starts and (storage.moves or storage.version):
            _refuse_lost(
                tape, one, (*results, *(given.argument for given in inputs if _is_beside(given, one)))
            )
        if storage is None or not storage.on_base:
            _separate(one)
            continue
        at = group.root_member if group.root_member is not None else len(found)
        if group.root_member is None:
            found.append(replace(one.base, slot=replace(one.base.slot, index=at)))
        for index in group.members:
            if index != group.root_member:
                found[index] = replace(found[index], base=at)
        bases.append(SyntheticBaseOf(at, group.members, group.kind))
    return tuple(found), tuple(bases)


def _refuse_read(tape: Recording, one: BaseGroup, results: list[Any]) -> None:
    """Of a base that is no argument itself; autograd reads it too, past a write or a change of sizes."""
    base, storage = one.base, one.base.storage
    if one.group.root_member is not None or storage is None:
        return
    is_unchanged = not storage.on_base and not storage.moves
    is_read = is_unchanged and any(node is base.node for read in tape.nodes for node in read.inputs())
    if is_read or any(value is base.argument for value in results):
        names = ", ".join(f"`{given.slot.name}`" for given in one.members.values())
        raise UnsupportedError(
            f"`_base` of {names}: inputs that overlap, whose base is no argument",
            tape.span,
            "pass the base too",
        )


def _meets_function(one: BaseGroup, results: list[Any]) -> bool:
    """Whether a custom function took a member by a history that autograd had made anew, on the base, or gave
    a view of one: it takes its arguments before any operator tells of them."""
    taken = set[Any]()
    for value in (value for value in results if isinstance(value, torch.Tensor)):
        nodes = autograd_nodes([grad_fn_of(value)])
        functions = [node for node in nodes if isinstance(node, BackwardCFunction)]
        if functions and _is_on(one, value):
            return True
        taken |= {node for function in functions for node, _ in function.next_functions}
    views = (given for given in one.members.values() if given.argument._base is not None)
    return bool(taken) and any(grad_fn_of(given.argument) in taken - {given.grad_fn} for given in views)


def _is_beside(given: CapturedInput, one: BaseGroup) -> bool:
    return given.is_tensor and all(given is not member for member in one.members.values())


def _is_on(one: BaseGroup, value: Any) -> bool:
    tracked = getattr(value, TRACKED_ATTRIBUTE, None)
    return tracked is not None and tracked.storage is one.base.storage


def _refuse_lost(tape: Recording, one: BaseGroup, results: Sequence[Any]) -> None:
    """After a write without grad, autograd takes a member apart from what it is a view of once more."""
    apart = [given for given in one.members.values() if given.is_apart]
    if any(has_other_grad_fn(given.argument) for given in apart):
        return  # refused as a write with a gradient
    ends = [given.leaf.node for given in apart if isinstance(given.leaf, GradientEdge)]
    computed = (value for value in results if isinstance(value, torch.Tensor) and not _is_on(one, value))
    starts = map(grad_fn_of, computed)  # the wrapper takes a view of an input again
    variables = (getattr(node, "variable", None) for node in autograd_nodes(starts, ends))
    if any(variable is leaf for variable in variables for leaf in one.hidden_starts):
        names = ", ".join(f"`{given.slot.name}`" for given in apart if not given.is_leaf)
        raise UnsupportedError(
            f"a read with a gradient of {names} after a write without one: a view of a tensor that is no "
            "argument, beside another argument on its memory that is no view of it",
            tape.span,
            "clone one of them before the call",
        )


def _separate(one: BaseGroup) -> None:
    """Each unwritten member is a graph input of its own, so the base's gradient goes without theirs."""
    for index, given in one.members.items():
        if index != one.group.root_member and given.leaf is not None and not given.is_apart:
            given.leaf.node.register_prehook(no_group)
