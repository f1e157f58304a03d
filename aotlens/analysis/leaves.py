"""Leaves that the function creates with `requires_grad_()`, and outputs that are views of one.

Invariant: the wrapper regenerates such a view from the leaf that it returns, so that the gradient reaches
that leaf.
"""

from itertools import islice
from typing import Any

import torch

from aotlens.analysis.bases import Start, alias_of, relative_chain
from aotlens.analysis.records import OutputAliasInfo, OutputBase, OutputType
from aotlens.capture.autograd.graph_walk import autograd_path
from aotlens.capture.invalid_views import grad_fn_of
from aotlens.capture.records import Captured, CapturedInput, OutputExit
from aotlens.unsupported import unsupported


def created_leaf_base(captured: Captured, value: Any) -> Any:
    """Return the function's own leaf that autograd knows as the base of the value; None for all others."""
    tracked = captured.recorded.find(value)
    if tracked is None or not tracked.chain or not captured.exit_of(value).requires_grad:
        return None
    leaf = _leaf_behind(captured.exit_of(value), 2 * len(tracked.chain) + 2)
    tracked_leaf = captured.recorded.find(leaf)
    if leaf is value or tracked_leaf is None or tracked_leaf.storage is not tracked.storage:
        return None
    if any(
        leaf is tensor
        for captured_input in captured.inputs
        for tensor in (captured_input.argument, captured_input.leaf, _base_of_input(captured_input))
    ):
        return None
    return leaf if _is_created_leaf(leaf) else None


def _base_of_input(captured_input: CapturedInput) -> Any:
    """Return the base of an argument, which may be a leaf that is no argument."""
    return captured_input.exit.view_base if captured_input.exit is not None else None


def _is_created_leaf(tensor: Any) -> bool:
    """Return True if a tensor, which need not be an output, is a leaf and no view made with grad mode off."""
    base = tensor._base
    is_leaf = tensor.requires_grad and grad_fn_of(tensor) is None
    return is_leaf and (base is None or not base.requires_grad)


def _leaf_behind(at_exit: OutputExit, most: int) -> Any:
    """Return the leaf at the end of autograd's graph if no node on the way has several inputs; else None.

    The graph of a view of a view made with grad mode off ends at that view, which is no leaf.
    """
    for autograd_node in islice(autograd_path(at_exit.grad_fn), most):
        if autograd_node is None:
            return at_exit.view_base
        leaf = getattr(autograd_node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            return leaf
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
    if passes_custom_function(captured.exit_of(value).grad_fn, []):
        raise unsupported("custom-view-of-created-leaf", captured.subject.span)
    of_input = captured.recorded.tracked(value).storage.inputs
    return alias_of(
        captured,
        index,
        Start(OutputBase(leaf_index), leaf, relative_chain(captured, leaf, value)),
        OutputType.ALIAS_OF_INPUT if of_input else OutputType.ALIAS_OF_INTERMEDIATE_BASE_IS_USER_OUTPUT,
        f"a view of output {leaf_index}, a leaf that the function makes",
    )


def _has_own_storage(captured: Captured, value: Any) -> bool:
    storage = captured.recorded.tracked(value).storage
    return not storage.inputs and all(output is value for output in captured.outputs_in(storage))


def passes_custom_function(grad_fn: Any, starts: list[Any]) -> bool:
    """Return True if a custom function is between a `grad_fn` and the first of `starts`, or the leaf."""
    autograd_node = grad_fn
    while autograd_node is not None and not any(autograd_node is start for start in starts):
        if isinstance(autograd_node, torch.autograd.function.BackwardCFunction):
            return True
        following = autograd_node.next_functions
        autograd_node = following[0][0] if following else None
    return False
