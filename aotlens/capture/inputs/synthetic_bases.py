"""Inputs that overlap on one storage, and their synthetic base.

Invariant: the function's arguments are views of one tensor exactly as the caller's are, for autograd and for
writes; the graph takes them separately unless one is written to or has a metadata mutation; then it takes
their base.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from aotlens.capture.graph import Recording
from aotlens.capture.inputs.overlapping_groups import OverlappingGroup
from aotlens.capture.mutations.writability import with_writability_of
from aotlens.capture.operators import aten
from aotlens.capture.records import CapturedInput, OpenInput, SyntheticBaseOf
from aotlens.capture.storage import Storage, Tracked, set_tracked, version_of, view_base
from aotlens.capture.views import ViewStep, apply_chain, extent
from aotlens.ir.names import node_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.ir.slots import FlatInput, SyntheticBase
from aotlens.torch_api.autograd import shares_version_counter
from aotlens.torch_api.dynamo.state import is_dynamo_input
from aotlens.torch_api.fake.tensors import FakeTensor, FakeTensorMode, to_fake
from aotlens.torch_api.modes import below_views
from aotlens.torch_api.symbolic import symbolic_context_of
from aotlens.unsupported import unsupported


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
    base = base_input(recording, slot, fake, group.root, name)
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


def base_input(recording: Recording, slot: FlatInput, fake: Any, like: Any, name: str) -> OpenInput:
    """Return one graph input with its fake tensor and its argument, a leaf exactly when `like` is."""
    node = Node(recording.name(name), None, (), {}, fake, Origin(NO_ORIGIN, ""))
    leaf = with_writability_of(like, _leaf(fake, like is not None and like.requires_grad))
    argument = _argument_for(leaf, like)
    if not fake.dim() and fake.item_memo is not None:  # Dynamo knows the value, and guards on it
        argument.item_memo = fake.item_memo
    recording.track(argument, Storage(node, argument))
    recording.symbols.define_sizes(node)
    is_leaf = like is None or like.is_leaf
    return tracked_input(
        recording,
        slot,
        node,
        argument,
        leaf=leaf if leaf.requires_grad else None,
        is_leaf=is_leaf,
        is_leaf_view=leaf.requires_grad and is_leaf and not view_base(like).requires_grad,
    )


def _argument_for(leaf: Any, like: Any) -> Any:
    """Return a tensor on the memory of a leaf: the leaf itself exactly when `like` is one."""
    argument = leaf
    if leaf.requires_grad and not like.is_leaf:
        with torch.enable_grad():
            argument = MakeNonLeaf.apply(leaf, leaf.detach)
    copy_tensor_class(argument, like)
    return argument


def _leaf(fake: Any, requires_grad: bool) -> Any:
    """Return a leaf on the memory of another tensor; an inference tensor if that is one."""
    inference = fake.is_inference()
    with (
        torch.inference_mode() if inference else torch.no_grad(),
        nullcontext() if inference else below_views(),
    ):
        leaf = fake.detach()
        return leaf.requires_grad_() if requires_grad else leaf


def copy_tensor_class(argument: Any, like: Any) -> None:
    """Mark the argument as a parameter or buffer if the caller's is: functions and modules check it."""
    if isinstance(like, torch.nn.Parameter):
        argument._is_param = True
    elif isinstance(like, torch.nn.Buffer):
        argument._is_buffer, argument.persistent = True, getattr(like, "persistent", True)


def tracked_input(
    recording: Recording, slot: FlatInput, node: Node, argument: Any, **facts: Any
) -> OpenInput:
    """Return the record of a tracked argument before the run, with further fields."""
    return CapturedInput(
        slot=slot,
        argument=argument,
        node=node,
        fake=node.val,
        storage=recording.tracked(argument).storage,
        grad_fn=argument.grad_fn,
        version=version_of(argument),
        **facts,
    )


class MakeNonLeaf(torch.autograd.Function):
    """Gives a new tensor a grad_fn that passes its gradient to another; so it may be written to in place."""

    @staticmethod
    def forward(ctx: Any, source: Any, make: Callable[[], Any]) -> Any:
        ctx.set_materialize_grads(False)
        return make()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


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


def fake_tensor_of(fake_mode: FakeTensorMode, value: Any, dynamic: bool) -> Any:
    """Return the fake tensor of a value, always the same one."""
    if type(value) is FakeTensor and value.fake_mode is fake_mode:
        return value
    if is_dynamo_input(value):  # Dynamo has decided which sizes are symbols
        return to_fake(fake_mode, value)
    sizes = symbolic_context_of(value) if dynamic else None
    if sizes is not None:
        return to_fake(fake_mode, value, symbolic_context=sizes)
    return to_fake(fake_mode, value, static_shapes=not dynamic)


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
        argument = _argument_for(leaf, value)
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
