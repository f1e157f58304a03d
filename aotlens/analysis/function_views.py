"""Outputs that are views made by a custom `autograd.Function`.

Invariant: the gradient of such a view goes through the function's own backward, which replayed view operators
would skip.
"""

from dataclasses import replace
from typing import Any

from aotlens.analysis.bases import relative_chain
from aotlens.analysis.graph_outputs import graph_output
from aotlens.analysis.leaves import passes_custom_function
from aotlens.analysis.records import AliasBase, OutputAliasInfo, OutputBase, OutputType
from aotlens.capture.builder import Builder
from aotlens.capture.invalid_views import grad_fn_of
from aotlens.capture.recorded import StorageState
from aotlens.capture.records import Captured, CapturedInput
from aotlens.ir.program import Node
from aotlens.torch_api.autograd import is_view_of_custom_function
from aotlens.unsupported import unsupported


def is_custom_function_view(captured: Captured, captured_input: CapturedInput, value: Any) -> bool:
    """Return True if a custom function made the view: replayed view operators would skip its backward."""
    starts = [grad_fn_of(captured_input.argument), *(other.grad_fn for other in captured.inputs)]
    return passes_custom_function(captured.exit_of(value).grad_fn, starts)


def custom_function_view(
    captured: Captured, builder: Builder, index: int, value: Any, input_index: int
) -> OutputAliasInfo:
    """Describe a custom function's view of an input: `CompiledFunction` returns it, as autograd demands.

    Raises:
        UnsupportedError: the input is written to, or its storage is swapped or has a synthetic base.
    """
    captured_input = captured.inputs[input_index]
    chain = relative_chain(captured, captured_input.argument, value)
    written = captured_input.storage is not None and captured_input.storage.version > 0
    is_swapped = captured.recorded.tracked(value).storage is not captured_input.storage
    on_base = captured_input.base is not None or any(
        synthetic_base.index == input_index and synthetic_base.kind != "input"
        for synthetic_base in captured.bases
    )
    if chain is None or written or is_swapped or on_base:
        change = "written to" if written else "on storage that other arguments share or that is swapped"
        change = "given another storage" if is_swapped else change
        raise unsupported(
            "custom-view-of-changed-input",
            captured.subject.span,
            input=captured_input.slot.name,
            change=change,
        )
    return OutputAliasInfo(
        index=index,
        output_type=OutputType.CUSTOM_FUNCTION_VIEW,
        reason=(
            f"a view of `{captured_input.slot.name}` made in a custom function: autograd does not allow"
            " writes to it"
        ),
        value=builder.node_of(value),
        custom_function_input=input_index,
        chain=chain,
        requires_grad=captured.exit_of(value).requires_grad,
        tensor=value,
    )


def view_of_intermediate(
    captured: Captured, builder: Builder, index: int, group: list[int], swapped_base: AliasBase | None
) -> OutputAliasInfo | None:
    """Describe a view of an intermediate that a custom function made, as a value of the graph.

    `swapped_base` is the base if an input's storage was swapped for this one.  Returns None if no function
    made the view, or if the view is alone on its storage.

    Raises:
        UnsupportedError: the storage is written to afterwards, so the backward raises in eager.
    """
    value = captured.outputs[index]
    tracked, at_exit = captured.recorded.tracked(value), captured.exit_of(value)
    if not at_exit.requires_grad or not tracked.chain:
        return None
    if at_exit.grad_fn is None:
        check_view_not_written(captured, value, tracked.storage)
        return None
    is_alone = len(group) == 1 and swapped_base is None
    if is_alone or not passes_custom_function(at_exit.grad_fn, [grad_fn_of(tracked.storage.base_tensor)]):
        return None
    builder.use_view_of_storage(value)
    graph_value = graph_output(captured, builder, index)
    if not isinstance(graph_value.value, Node):
        raise unsupported("custom-view-of-subclass", captured.subject.span)
    reason = "a view made in a custom function, whose backward no repeated view would call"
    return replace(
        graph_value,
        output_type=OutputType.ALIAS_OF_INTERMEDIATE_BASE_IS_USER_OUTPUT,
        reason=reason,
        is_custom_function_view=True,
        base=swapped_base if len(group) == 1 else OutputBase(_output_sharing_storage(captured, index, group)),
    )


def _output_sharing_storage(captured: Captured, index: int, group: list[int]) -> int:
    """Return the output whose storage the view shares: preferably one that covers the whole storage."""
    others = [output_index for output_index in group if output_index != index]
    return min(
        others, key=lambda output_index: bool(captured.recorded.tracked(captured.outputs[output_index]).chain)
    )


def check_view_not_written(captured: Captured, value: Any, storage: StorageState) -> None:
    """Check a view that requires grad and has no `grad_fn` that autograd reports.

    Raises:
        UnsupportedError: a custom function made it, and its base is written to afterwards.
    """
    at_exit = captured.exit_of(value)
    alone = at_exit.view_base is not None and not at_exit.base_requires_grad and at_exit.raises_on_use
    if storage.version and (is_view_of_custom_function(value) or alone):
        raise unsupported("custom-view-then-write", storage.writes[-1].origin.location.innermost)
