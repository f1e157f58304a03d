"""Inputs that overlap on one storage, and their synthetic base.

Invariant: the function's arguments are views of one tensor exactly as the caller's are, for autograd and for
writes; the graph takes them separately unless one is written to, or is read with a gradient after another had
a metadata mutation; then it takes their base.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from aotlens.capture.graph import TRACKED_ATTRIBUTE, Recording
from aotlens.capture.inputs.overlapping_groups import OverlappingGroup, root_of
from aotlens.capture.mutations.writability import with_writability_of
from aotlens.capture.operators import aten
from aotlens.capture.records import CapturedInput, OpenInput
from aotlens.capture.storage import Storage, Tracked
from aotlens.capture.views import ViewStep, apply_chain
from aotlens.ir.names import node_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.ir.slots import FlatInput, SyntheticBase
from aotlens.torch_api.autograd import shares_version_counter
from aotlens.torch_api.dynamo.state import is_dynamo_input
from aotlens.torch_api.fake.tensors import FakeTensor, FakeTensorMode, to_fake
from aotlens.torch_api.modes import below_views
from aotlens.torch_api.symbolic import symbolic_context_of


@dataclass(frozen=True, slots=True)
class BaseGroup:
    """A group of overlapping inputs as fake tensors."""

    group: OverlappingGroup
    base: OpenInput
    members: dict[int, OpenInput]
    hidden_leaves: tuple[Any, ...]
    """Fake leaves for roots that are not members themselves."""


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
    captured, roots = {}, dict[int, RootAlias]()
    for index in sorted(group.members, key=lambda index: not values[index].requires_grad):
        if index == group.root_member:
            captured[index] = base
        elif group.kind == "flat" and values[index].requires_grad:
            root = values[index] if values[index].is_leaf else root_of(values[index])
            root_alias = roots[id(root)] = roots.get(id(root)) or _root_alias(base, group, root, roots)
            captured[index] = _member_with_own_edge(
                recording, base, root_alias, (values[index], slots[index])
            )
        else:
            source = _root_of_member(base, group, values[index], roots)
            captured[index] = _member(recording, base, source, (values[index], slots[index]))
    member_values = [values[index] for index in group.members]
    hidden = (leaf for leaf, _, root in roots.values() if not any(root is value for value in member_values))
    return BaseGroup(group, base, captured, tuple(leaf for leaf in hidden if leaf is not None))


RootAlias = tuple[Any, Any, Any]
"""The fake leaf of a root tensor (or None), its alias that members are views of, and the caller's tensor."""


def _root_of_member(base: OpenInput, group: OverlappingGroup, value: Any, roots: dict[int, RootAlias]) -> Any:
    """Return the tensor that the member is a view of; members of a flat group share those of their root."""
    root = root_of(value)
    if group.kind != "flat" and (
        value.requires_grad or root is group.root or _shares_version(root, group.root)
    ):
        detached = base.requires_grad and not value.requires_grad
        return base.argument.detach() if detached else base.argument
    leaf, source, _ = _alias_without_grad(base, group, root, roots)
    return source if leaf is None else source.detach()


def _alias_without_grad(
    base: OpenInput, group: OverlappingGroup, root: Any, roots: dict[int, RootAlias]
) -> RootAlias:
    if id(root) not in roots:
        roots[id(root)] = None, _detached_alias(base, group, root, roots), root
    return roots[id(root)]


def _detached_alias(base: OpenInput, group: OverlappingGroup, root: Any, roots: dict[int, RootAlias]) -> Any:
    """Return an alias without grad_fn that shares version counters as the caller's tensors do."""
    sibling = _alias_sharing_version(root, roots)
    if sibling is not None:
        return sibling.detach()
    return base.argument.data if roots or group.root is not None else base.argument.detach()


def _alias_sharing_version(root: Any, roots: dict[int, RootAlias]) -> Any:
    """Return the alias of a root that shares its version counter; None if there is none yet."""
    return next((alias for _, alias, other_root in roots.values() if _shares_version(root, other_root)), None)


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
    requires_grad = like is not None and like.requires_grad
    argument = leaf = with_writability_of(like, _leaf(fake, requires_grad))
    is_leaf = like is None or like.is_leaf
    if requires_grad and not is_leaf:
        with torch.enable_grad():
            argument = MakeNonLeaf.apply(leaf, leaf)
    copy_tensor_class(argument, like)
    if not fake.dim() and fake.item_memo is not None:  # Dynamo knows the value, and guards on it
        argument.item_memo = fake.item_memo
    storage = Storage(node, argument)
    recording.track(argument, storage)
    captured_input = _captured_input(
        recording, slot, argument, (node, leaf if requires_grad else None, is_leaf)
    )
    is_leaf_view = requires_grad and is_leaf and not root_of(like).requires_grad
    return replace(captured_input, is_leaf_view=True) if is_leaf_view else captured_input


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


def _captured_input(
    recording: Recording, slot: FlatInput, argument: Any, known: tuple[Node, Any, bool]
) -> OpenInput:
    """Return the record of a tracked argument, from its node, gradient leaf and whether it is a leaf."""
    node, leaf, is_leaf = known
    recording.symbols.define_sizes(node)
    return CapturedInput(
        slot=slot,
        argument=argument,
        node=node,
        fake=node.val,
        leaf=leaf,
        storage=recording.tracked(argument).storage,
        grad_fn=argument.grad_fn,
        version=0 if argument.is_inference() else argument._version,
        is_leaf=is_leaf,
    )


class MakeNonLeaf(torch.autograd.Function):
    """Gives a tensor a grad_fn that passes its gradient to another, so that it may be written to in place."""

    @staticmethod
    def forward(ctx: Any, source: Any, tensor: Any) -> Any:
        ctx.set_materialize_grads(False)
        with below_views():
            return tensor.detach()

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
    size = first.element_size()
    ends = [last_element(values[index]) * values[index].element_size() for index in group.members]
    wide = max(end + values[index].element_size() for end, index in zip(ends, group.members, strict=True))
    with torch.no_grad(), below_views():
        return fake.detach().as_strided((-(-wide // size),), (1,), 0)


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


def _member(recording: Recording, base: OpenInput, source: Any, member: tuple[Any, FlatInput]) -> OpenInput:
    value, slot = member
    chain = _chain(base.fake, value)
    with torch.no_grad(), below_views():
        fake = apply_chain(chain, base.fake)
    node = Node(recording.name(node_name(slot.name)), None, (), {}, fake, Origin(NO_ORIGIN, ""))
    with torch.enable_grad():
        argument = apply_chain(_chain(source, value), source)
    if value._base is None and not value.requires_grad:
        argument = argument.detach()
    _track_member(base, chain, argument, node)
    leaf = torch.autograd.graph.get_gradient_edge(argument) if value.requires_grad else None
    return _captured_input(recording, slot, argument, (node, leaf, value.is_leaf))


def _track_member(base: OpenInput, chain: tuple[ViewStep, ...], argument: Any, node: Node) -> None:
    storage = base.storage
    assert storage is not None  # a base is a tensor
    storage.views[chain] = storage.overlapping_inputs[chain] = node
    setattr(argument, TRACKED_ATTRIBUTE, Tracked(storage, chain, node, storage.version))


def _member_with_own_edge(
    recording: Recording, base: OpenInput, root_alias: RootAlias, member: tuple[Any, FlatInput]
) -> Any:
    """Return a member with its own gradient edge, shared only with views of the same root."""
    value, slot = member
    (leaf, argument, root), chain = root_alias, _chain(base.fake, value)
    if root is not value:
        with torch.enable_grad():
            argument = apply_chain(_chain(argument, value), argument)
        leaf = torch.autograd.graph.get_gradient_edge(argument)
        leaf.node.register_prehook(block_gradients)  # the wrapper's call propagates its gradient
    with torch.no_grad(), below_views():
        fake = apply_chain(chain, base.fake)
    copy_tensor_class(argument, value)
    known = (
        Node(recording.name(node_name(slot.name)), None, (), {}, fake, Origin(NO_ORIGIN, "")),
        leaf,
        value.is_leaf,
    )
    _track_member(base, chain, argument, known[0])
    return replace(_captured_input(recording, slot, argument, known), has_own_edge=True)


def _root_alias(
    base: OpenInput, group: OverlappingGroup, root: Any, roots: dict[int, RootAlias]
) -> RootAlias:
    """Return the fake leaf of a root with a gradient, and the alias that its views are taken of.

    A leaf inside another member shares its version counter if the caller's does; a view of a tensor without
    gradient is one here too.
    """
    known = ((alias, like) for _, alias, like in roots.values() if root.is_leaf)
    if root.is_leaf and root._base is not None:
        _, whole, _ = _alias_without_grad(base, group, root._base, roots)
        with torch.enable_grad():
            leaf = apply_chain(_chain(whole, root), whole)
    elif (
        sibling := next((alias for alias, like in known if shares_version_counter(root, like)), None)
    ) is not None:
        leaf = apply_chain(_chain(sibling, root), sibling.detach()).detach()
    else:
        with torch.no_grad(), below_views():
            leaf = apply_chain(_chain(base.fake, root), base.argument).data
    leaf.requires_grad_()
    with torch.enable_grad():
        return leaf, leaf if root.is_leaf else MakeNonLeaf.apply(leaf, leaf), root


def has_other_grad_fn(argument: Any) -> bool:
    """Return True if the detached tensor, or its base, has a different `grad_fn` than at entry."""
    grad_fn = root_of(argument).grad_fn
    return grad_fn is not None and getattr(grad_fn, "_forward_cls", None) is not MakeNonLeaf


def block_gradients(gradients: tuple[Any, ...]) -> tuple[None, ...]:
    return (None,) * len(gradients)


def _chain(base: Any, value: Any) -> tuple[ViewStep, ...]:
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


def last_element(tensor: Any) -> int:
    """Return the highest storage element that the tensor contains."""
    steps = ((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset()) + sum(steps)
