"""Which tensors a function may write to while it is recorded."""

from math import prod
from typing import Any

import torch

from aotlens.capture.inference_tensors import refuse_inference_write
from aotlens.capture.operators import aten
from aotlens.capture.places import place_of
from aotlens.capture.stale_views import refuse_stale
from aotlens.capture.storage import repeated_dims
from aotlens.capture.strided import meets_itself
from aotlens.capture.tape import TRACK, Tape
from aotlens.errors import RefusedRuntimeError, UnsupportedError
from aotlens.ir.program import op_name
from aotlens.torch_api.operators import pytree

FILLS = frozenset({aten.zero_.default, aten.fill_.Scalar})
"""Writes of one value to every element, which may be made several times to the same memory."""


def check_writable(tape: Tape, target: Any, func: Any, args: tuple[Any, ...]) -> None:
    """Raises UnsupportedError or RefusedRuntimeError where the tensor cannot be written to."""
    refuse_inference_write(tape, target)
    tracked = tape.tracked(target)
    if tracked.storage.moves and target._base is not None and _has_gradient(target, args):
        refuse_stale(target, tape.span, written=target.requires_grad)
    if tape.exchanged and _has_gradient(target, args):
        _refuse_history_of_other_memory(tape, target)
    base = tracked.storage.base
    is_constant = base.constant is not None or tape.is_constant(target)
    if is_constant or any(base is node for node, _ in tape.outside):
        raise UnsupportedError(
            f"mutation by `{op_name(func)}` of a tensor that is neither argument, parameter nor buffer",
            tape.span,
            "pass it as an argument, register it as a buffer, or use `torch.compile(fn, backend='aotlens')`",
        )
    if repeated_dims(target) and func not in FILLS:
        raise RefusedRuntimeError(
            f"`{op_name(func)}` on an expanded tensor (unsupported operation: more than one element of "
            "the written-to tensor refers to a single memory location)",
            tape.span,
            "clone it before writing",
        )
    if func not in FILLS and meets_itself(target):
        raise UnsupportedError(
            f"`{op_name(func)}` on elements that overlap (`as_strided`, or windows of `unfold`), of which "
            "more than one refers to a single memory location",
            tape.span,
            "clone them before",
        )
    _refuse_part_of_repeating_input(tape, target)
    if tracked.storage.inside and len(tracked.storage.inputs) > 1:
        raise RefusedRuntimeError(
            "Encountered aliased inputs that are mutated in the graph, but "
            f"`{tracked.storage.inside}` is a tensor subclass. This is not supported today",
            tape.span,
            "clone one of them before the call",
        )


def _refuse_history_of_other_memory(tape: Tape, target: Any) -> None:
    """Of a view that lies elsewhere by now: autograd then gives the input under it a new history."""
    under = getattr(target._base, TRACK, None)
    if under is not None and under.storage.inputs and under.storage is not tape.tracked(target).storage:
        raise UnsupportedError(
            "a write with a gradient to a view of an input that was given other memory (`.data`, `set_`)",
            tape.span,
            "assign to a tensor of its own, or write under `torch.no_grad()`",
        )


def _refuse_part_of_repeating_input(tape: Tape, target: Any) -> None:
    """Of one with symbolic sizes, which has no base under it (`bases`)."""
    storage = tape.tracked(target).storage
    if not storage.inputs or not tape.tracked(target).chain or not meets_itself(storage.base_tensor):
        return
    whole, part = place_of(storage.base_tensor), place_of(target)
    if whole is None or part is None or prod(whole.sizes) != prod(part.sizes):
        name = f"`{storage.base.name}`, " if not storage.version else ""
        raise UnsupportedError(
            f"a write to a part of an input of symbolic sizes, {name}that shows the same memory several "
            "times (`expand`, `unfold`, `as_strided`)",
            tape.span,
            "clone it before, pass the tensor under it, or compile without dynamic sizes",
        )


def _has_gradient(target: Any, args: tuple[Any, ...]) -> bool:
    """Whether autograd sees a write to the tensor of what is computed from the others."""
    return torch.is_grad_enabled() and any(
        isinstance(arg, torch.Tensor) and arg.requires_grad for arg in (target, *pytree.tree_leaves(args))
    )
