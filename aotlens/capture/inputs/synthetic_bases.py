"""Inputs that overlap on one storage, and their synthetic base.

Invariant: the function's arguments are views of one tensor exactly as the caller's are, for autograd and for
writes; the graph takes them separately unless one is written to or has a metadata mutation; then it takes
their base.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from aotlens.capture.as_strided import overlaps_itself
from aotlens.capture.graph import Recording
from aotlens.capture.inputs.tensor_inputs import argument_for, fake_tensor_of, tensor_input, tracked_input
from aotlens.capture.operators import aten
from aotlens.capture.records import OpenInput, SyntheticBaseOf
from aotlens.capture.storage import Tracked, contains_range, ranges_overlap, set_tracked, view_base
from aotlens.capture.views import ViewStep, apply_chain, extent
from aotlens.ir.names import node_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.ir.slots import FlatInput, SyntheticBase
from aotlens.torch_api.autograd import shares_version_counter
from aotlens.torch_api.dynamo.state import is_dynamo_input
from aotlens.torch_api.fake.tensors import is_traceable_wrapper_subclass
from aotlens.torch_api.modes import below_views
from aotlens.unsupported import unsupported


@dataclass(frozen=True, slots=True)
class OverlappingGroup:
    """Distinct inputs on one storage of which two overlap, or one that contains elements several times."""

    members: tuple[int, ...]
    """Flat indices."""
    root: Any
    """The caller's tensor of which all members with a gradient are views; None for a flat base."""
    root_member: int | None
    """The member that is the root itself, if any."""

    @property
    def kind(self) -> Literal["input", "view_base", "flat"]:
        if self.root is None:
            return "flat"
        return "input" if self.root_member is not None else "view_base"


def overlapping_groups(values: list[Any], dynamic: bool) -> list[OverlappingGroup]:
    """Return the groups of inputs that need a base if a member is written; usually none.

    With symbolic sizes, an input that only overlaps itself gets no base, which would specialise its sizes.
    """
    storages: dict[int, list[int]] = {}
    seen: set[int] = set()
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor) and id(value) not in seen and _is_plain(value):
            seen.add(id(value))
            storages.setdefault(value.untyped_storage()._cdata, []).append(index)
    return [
        _group(values, tuple(members))
        for members in storages.values()
        if _any_overlap(values, members)
        or (not dynamic and any(overlaps_itself(values[member]) for member in members))
    ]


def _is_plain(value: Any) -> bool:
    return value.layout is torch.strided and not is_traceable_wrapper_subclass(value)


def _any_overlap(values: list[Any], members: list[int]) -> bool:
    """Return True if two members overlap, or one is a view of another although it is empty."""
    return any(
        ranges_overlap(values[left], values[right]) or _is_view_of_other(values[left], values[right])
        for end, left in enumerate(members)
        for right in members[:end]
    )


def _is_view_of_other(left: Any, right: Any) -> bool:
    return left._base is right or right._base is left


def _group(values: list[Any], members: tuple[int, ...]) -> OverlappingGroup:
    """Return the group; its base is flat if no single autograd root contains all members.

    Each member then retains its own gradient edge.  Members without gradient need a root only with grad mode
    on: a write may then give it, and all of them, a `grad_fn`.
    """
    roots = [view_base(values[index]) for index in members]
    differentiable_roots = {
        id(root): root for root, index in zip(roots, members, strict=True) if values[index].requires_grad
    }
    one_root = all(root is roots[0] for root in roots)
    root = next(iter(differentiable_roots.values()), None)
    if root is None and one_root and torch.is_grad_enabled():
        root = roots[0]
    has_leaves_in_plain_root = differentiable_roots and root is not None and not root.requires_grad
    if len(differentiable_roots) > 1 or root is None or has_leaves_in_plain_root:
        return OverlappingGroup(members, None, None)
    if not all(_contains(root, values[index]) for index in members):
        return OverlappingGroup(members, None, None)
    return OverlappingGroup(members, root, next((index for index in members if values[index] is root), None))


def _contains(root: Any, value: Any) -> bool:
    """Return True if a view of the root, from the storage's start, can contain the tensor."""
    if root.storage_offset() != 0:
        return False
    return value is root or value._base is root or contains_range(root, value)


@dataclass(frozen=True, slots=True)
class BaseGroup:
    """A group of overlapping inputs as fake tensors."""

    group: OverlappingGroup
    base: OpenInput
    members: dict[int, OpenInput]


def make_synthetic_base(
    recording: Recording, group: OverlappingGroup, values: list[Any], slots: tuple[FlatInput, ...]
) -> BaseGroup:
    """Return the members as views of one fake base, which the graph may take instead."""
    fake = _fake_base(recording, group, values)
    members = ", ".join(slots[index].name for index in group.members)
    slot: FlatInput = SyntheticBase(f"the base of {members}", len(slots))
    name = f"base_of_{node_name(slots[group.members[0]].name)}"
    if group.root_member is not None:
        slot = slots[group.root_member]
        name = node_name(slot.name)
    base = tensor_input(recording, slot, fake, group.root, name)
    storage = base.storage
    assert storage is not None  # a base is a tensor
    storage.inputs = group.members
    aliases = [(group.root, base.argument)] if group.root is not None else []
    captured = {
        index: base
        if index == group.root_member
        else _member(recording, base, _alias_for(base, values[index], aliases), (values[index], slots[index]))
        for index in group.members
    }
    return BaseGroup(group, base, captured)


def _alias_for(base: OpenInput, value: Any, aliases: list[tuple[Any, Any]]) -> Any:
    """Return the alias of the base that a member is a view of.

    `aliases` has one for each of the caller's roots whose version counter no earlier one shares.
    """
    root = view_base(value)
    alias = next((alias for other, alias in aliases if _shares_version(root, other)), None)
    if alias is None:
        alias = base.argument.data
        aliases.append((root, alias))
    return alias.detach() if alias.requires_grad and not value.requires_grad else alias


def _shares_version(tensor: Any, other: Any) -> bool:
    """Return True if tensors share a version counter; Dynamo's inputs are assumed to."""
    return (
        tensor is other
        or is_dynamo_input(tensor)
        or is_dynamo_input(other)
        or shares_version_counter(tensor, other)
    )


def _fake_base(recording: Recording, group: OverlappingGroup, values: list[Any]) -> Any:
    """Return the fake root, or a flat tensor over the storage up to the last element of any member.

    Dynamo names a root's sizes after its first view; creating the fakes in the same order retains the names.
    """
    dynamo_fakes = [values[index] for index in group.members if is_dynamo_input(values[index])]
    dynamo_fakes = [fake_tensor_of(recording.fake_mode, value, dynamic=False) for value in dynamo_fakes]
    for known in dynamo_fakes:
        _specialise(known)
    if group.root is not None:
        fake = fake_tensor_of(recording.fake_mode, group.root, dynamic=False)
        if group.root_member is None:  # no argument provides the symbols that Dynamo made for its sizes
            _specialise(fake)
        return fake
    members = [values[index] for index in group.members]
    plain = (value for value in members if not value.is_neg() and not value.is_conj())
    first = next(plain, members[0])  # a lazily negated or conjugated tensor cannot be viewed as another dtype
    fake = fake_tensor_of(recording.fake_mode, first, dynamic=False)
    size_bytes = max(
        (int(value.storage_offset()) + extent(value.shape, value.stride())) * value.element_size()
        for value in members
    )
    with torch.no_grad(), below_views():
        return fake.detach().as_strided((-(-size_bytes // fake.element_size()),), (1,), 0)


def _specialise(fake: Any) -> None:
    """Specialise a tensor's geometry, so that Dynamo recompiles for another: chains contain plain numbers."""
    for number in (*fake.shape, *fake.stride(), fake.storage_offset()):
        number.__index__()


def _member(recording: Recording, base: OpenInput, alias: Any, member: tuple[Any, FlatInput]) -> OpenInput:
    """Return a member as a view of an alias of the base.

    A member with a gradient that the base does not have gets its own gradient edge.
    """
    value, slot = member
    chain = _chain(base.fake, value)
    with torch.no_grad(), below_views():
        fake = apply_chain(chain, base.fake)
    node = Node(recording.name(node_name(slot.name)), None, (), {}, fake, Origin(NO_ORIGIN, ""))
    with torch.enable_grad():
        argument, leaf = apply_chain(_chain(alias, value), alias), None
    has_own_edge = value.requires_grad and not alias.requires_grad
    if has_own_edge:
        is_leaf_view = value.is_leaf and value._base is not None  # then it stays a view of the alias
        leaf = (argument if is_leaf_view else argument.detach()).requires_grad_()
        argument = argument_for(leaf, value)
    elif value.requires_grad:
        leaf = get_gradient_edge(argument)
    elif value._base is None:
        argument = argument.detach()
    storage = base.storage
    assert storage is not None  # a base is a tensor
    storage.views[chain] = node
    storage.overlapping_inputs = {**storage.overlapping_inputs, chain: node}
    set_tracked(argument, Tracked(storage, chain, node, storage.version))
    recording.symbols.define_sizes(node)
    facts = {"leaf": leaf, "is_leaf": value.is_leaf, "has_own_edge": has_own_edge}
    return tracked_input(recording, slot, node, argument, **facts)


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


def _block_base_gradient(base_group: BaseGroup) -> None:
    """Exclude unwritten members from the base's gradient: each is a graph input of its own."""
    for captured_input in base_group.members.values():
        if isinstance(captured_input.leaf, GradientEdge):
            captured_input.leaf.node.register_prehook(lambda gradients: (None,) * len(gradients))


def _chain(base: Any, value: Any) -> tuple[ViewStep, ...]:
    """Return the views that lead from a base to a tensor on its storage, of another dtype if need be."""
    size, stride, offset = list(value.shape), list(value.stride()), value.storage_offset()
    strided = ViewStep(aten.as_strided.default, (size, stride, offset))
    if value.dtype is base.dtype:
        return (*_lazy_bit_steps(base, value), strided)
    if value.dtype is base.dtype.to_real():
        return (
            *_lazy_bit_steps(base),
            ViewStep(aten.view_as_real.default, ()),
            *_lazy_bit_steps(value),
            strided,
        )
    if base.dtype is value.dtype.to_real():
        pairs = ([*size, 2], [*(2 * step for step in stride), 1], 2 * offset)
        steps = ViewStep(aten.as_strided.default, pairs), ViewStep(aten.view_as_complex.default, ())
        return (*_lazy_bit_steps(base), *steps, *_lazy_bit_steps(value))
    retyped = ViewStep(aten.view.dtype, (value.dtype,))
    return (*_lazy_bit_steps(base), retyped, *_lazy_bit_steps(value), strided)


def _lazy_bit_steps(*tensors: Any) -> tuple[ViewStep, ...]:
    """Return the steps between the lazy conjugation and negation of two tensors (or of one and none)."""
    conjugated = sum(tensor.is_conj() for tensor in tensors) % 2
    negated = sum(tensor.is_neg() for tensor in tensors) % 2
    steps = ((conjugated, aten._conj.default), (negated, aten._neg_view.default))
    return tuple(ViewStep(op, ()) for differs, op in steps if differs)
