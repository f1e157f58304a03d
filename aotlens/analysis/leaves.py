"""Leaves that the function creates with `requires_grad_()`, and outputs that are views of one.

Invariant: the wrapper regenerates such a view from the leaf that it returns, so that the gradient reaches
that leaf.
"""

from typing import Any

import torch

from aotlens.analysis.records import Geometry, OutputAliasInfo, OutputBase, OutputType
from aotlens.analysis.tensor_state import geometry_of, grad_fn_of
from aotlens.capture.recorded import Recorded
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import view_base
from aotlens.capture.views import ViewStep
from aotlens.unsupported import unsupported


def is_created_leaf(value: Any) -> bool:
    """Return True if the tensor is a leaf for autograd, and no view that was made with grad mode off."""
    base = value._base
    return value.requires_grad and grad_fn_of(value) is None and (base is None or not base.requires_grad)


def created_leaf_base(captured: Captured, value: Any) -> Any:
    """Return the function's own leaf that autograd knows as the base of the value; None for all others."""
    tracked = captured.recorded.find(value)
    if tracked is None or not tracked.chain or not value.requires_grad:
        return None
    leaf = _leaf_behind(value, 2 * len(tracked.chain) + 2)
    tracked_leaf = captured.recorded.find(leaf)
    if leaf is value or tracked_leaf is None or tracked_leaf.storage is not tracked.storage:
        return None
    if any(
        leaf is tensor
        for captured_input in captured.inputs
        for tensor in (captured_input.argument, captured_input.leaf, _base_of_input(captured_input))
    ):
        return None
    return leaf if is_created_leaf(leaf) else None


def _base_of_input(captured_input: CapturedInput) -> Any:
    """Return the base of an argument, which may be a leaf that is no argument."""
    return captured_input.argument._base if captured_input.is_tensor else None


def _leaf_behind(value: Any, most: int) -> Any:
    """Return the leaf at the end of autograd's graph if no node on the way has several inputs; else None.

    The graph of a view of a view made with grad mode off ends at that view, which is no leaf.
    """
    step = grad_fn_of(value)
    for _ in range(most):
        if step is None:
            return value._base
        leaf = getattr(step, "variable", None)
        if isinstance(leaf, torch.Tensor):
            return leaf
        if len(step.next_functions) != 1:
            return None
        step = step.next_functions[0][0]
    return None


def view_of_created_leaf(captured: Captured, index: int, leaf: Any) -> OutputAliasInfo | None:
    """Describe an output as a view of a leaf that is also an output; None if it is alone on its storage.

    Raises:
        UnsupportedError: the leaf is no output, so the wrapper cannot regenerate the view; or a custom
            function made the view, and a repeated view would skip its backward.
    """
    value = captured.outputs[index]
    leaf_index = next(
        (leaf_index for leaf_index, other in enumerate(captured.outputs) if other is leaf), None
    )
    if leaf_index is None:
        if _has_own_storage(captured, value):
            return None
        raise unsupported("view-of-created-leaf", captured.subject.span)
    if passes_custom_function(grad_fn_of(value), []):
        raise unsupported("custom-view-of-created-leaf", captured.subject.span)
    chain = relative_chain(captured.recorded, leaf, value)
    return OutputAliasInfo(
        index=index,
        output_type=OutputType.ALIAS_OF_INPUT
        if captured.recorded.tracked(value).storage.inputs
        else OutputType.ALIAS_OF_INTERMEDIATE_BASE_IS_USER_OUTPUT,
        reason=f"a view of result {leaf_index}, a leaf that the function makes",
        value=None,
        base=OutputBase(leaf_index),
        chain=chain or (),
        geometry=geometry_on_base(captured, chain, value, leaf),
        requires_grad=True,
        viewed_without_grad=grad_fn_of(value) is None,
        tensor=value,
    )


def _has_own_storage(captured: Captured, value: Any) -> bool:
    storage = captured.recorded.tracked(value).storage
    others = (other for other in captured.outputs if isinstance(other, torch.Tensor) and other is not value)
    return not storage.inputs and all(
        captured.recorded.tracked(output).storage is not storage for output in others
    )


def passes_custom_function(step: Any, starts: list[Any]) -> bool:
    """Return True if a custom function is between a `grad_fn` and the first of `starts`."""
    while step is not None and not any(step is start for start in starts):
        if isinstance(step, torch.autograd.function.BackwardCFunction):
            return True
        step = step.next_functions[0][0] if step.next_functions else None
    return False


def views_before_detach(recorded: Recorded, value: Any, chain: tuple[ViewStep, ...] | None) -> int:
    """Return how many of the views from a base to a value precede the views of the detached tensor."""
    steps, start = 1 if chain is None else len(chain), view_base(value)
    if start is value:
        return steps
    tracked, under = recorded.tracked(value), recorded.tracked(start)
    if under.storage is not tracked.storage:
        return steps
    pairs = enumerate(zip(tracked.chain, under.chain, strict=False))
    shorter = min(len(tracked.chain), len(under.chain))
    common = next((index for index, (own_step, start_step) in pairs if own_step is not start_step), shorter)
    return max(steps - (len(tracked.chain) - common), 0)


def geometry_on_base(
    captured: Captured, chain: tuple[ViewStep, ...] | None, value: Any, base: Any
) -> Geometry | None:
    """Return the value's geometry on the base's storage if no view chain leads there; else None.

    Raises:
        UnsupportedError: it reinterprets the memory in a way that sizes and strides do not express.
    """
    if chain is not None:
        return None
    otherwise = reinterpreted_as(value, base)
    if otherwise is not None:
        name = next(
            (
                f"`{captured_input.slot.name}`"
                for captured_input in captured.inputs
                if captured_input.argument is base
            ),
            "",
        )
        raise unsupported(
            "reinterpreted-view-of-changed-leaf",
            captured.subject.span,
            tensor=name or "a tensor",
            reinterpretation=otherwise,
        )
    return geometry_of(value)


def reinterpreted_as(value: Any, base: Any) -> str | None:
    """Return how a tensor reinterprets another's memory (dtype, conjugate, negative); None if it does not."""
    if value.dtype is not base.dtype:
        return "another dtype"
    alike = value.is_conj() == base.is_conj() and value.is_neg() == base.is_neg()
    return None if alike else "its conjugate or negative"


def relative_chain(recorded: Recorded, base: Any, value: Any) -> tuple[ViewStep, ...] | None:
    """Return the views that lead from `base` to `value`; None if only geometry describes `value`.

    Autograd also uses geometry for a view whose sizes changed with grad mode off.
    """
    start, end = recorded.tracked(base).chain, recorded.tracked(value).chain
    if end[: len(start)] != start:
        return None
    steps = end[len(start) :]
    unseen = any(step.in_place and not step.grad_enabled for step in steps)
    return None if unseen and value.requires_grad and grad_fn_of(value) is not None else steps
