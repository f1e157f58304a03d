"""One graph input that is a tensor: its node, its fake tensor, and the function's argument for it.

Invariant: the argument is a leaf, a parameter or a buffer exactly when the caller's tensor is one.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.mutations.writability import with_writability_of
from aotlens.capture.records import CapturedInput, OpenInput
from aotlens.capture.storage import Storage, version_of, view_base
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.ir.slots import FlatInput
from aotlens.torch_api.dynamo.state import is_dynamo_input
from aotlens.torch_api.fake.tensors import FakeTensor, FakeTensorMode, to_fake
from aotlens.torch_api.modes import below_views
from aotlens.torch_api.symbolic import symbolic_context_of


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


def tensor_input(recording: Recording, slot: FlatInput, fake: Any, like: Any, name: str) -> OpenInput:
    """Return one graph input with its fake tensor and its argument, a leaf exactly when `like` is."""
    node = Node(recording.name(name), None, (), {}, fake, Origin(NO_ORIGIN, ""))
    leaf = with_writability_of(like, _leaf(fake, like is not None and like.requires_grad))
    argument = argument_for(leaf, like)
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


def argument_for(leaf: Any, like: Any) -> Any:
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


class MakeNonLeaf(torch.autograd.Function):
    """Gives a new tensor a grad_fn that passes its gradient to another; so it may be written to in place."""

    @staticmethod
    def forward(ctx: Any, source: Any, make: Callable[[], Any]) -> Any:
        ctx.set_materialize_grads(False)
        return make()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None
