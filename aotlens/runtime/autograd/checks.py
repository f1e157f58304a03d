"""Module text that rejects what autograd would do around a call without the compiled function's knowledge.

Invariant: hooks on saved tensors, a second backward, `retain_grad` and tangents of forward-mode AD act as in
eager, or raise.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.autograd.graph_walk import autograd_nodes, saved_values
from aotlens.capture.events import EventKind
from aotlens.capture.records import Captured
from aotlens.ir.render import Names
from aotlens.partition.records import Partitioned
from aotlens.partition.rules import is_number
from aotlens.runtime.module_text import TextBuilder

AUTOGRAD = "torch._C._autograd"


def check_hooks(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """Write the check of the caller's hooks; Dynamo has its own guard for it."""
    reason = "saved-tensor hooks that are graph modules are part of the graphs"
    captured = parts.joint.captured
    with builder.step("check saved-tensor hooks", reason):
        if captured.subject.frontend == "dynamo":
            return
        name, hooks_of_call = captured.subject.name, f"{AUTOGRAD}._top_saved_tensors_default_hooks(True)"
        if parts.packing is None:
            # hooks could hide a change that the backward expects in saved tensors
            if parts.joint.recorded.events.has(EventKind.HIDDEN_CHANGE) and not captured.has_hooks:
                message = (
                    f"compiled `{name}`: it mutates a tensor that requires grad where autograd does not see"
                    " it, and was compiled without saved-tensor hooks; compile it under the hooks, or call"
                    " it without them"
                )
                builder.raise_if(f"{hooks_of_call} is not None", "ValueError", message)
            return
        hooks = parts.packing.hooks
        pair = f"({names.object(hooks.pack, 'PACK')}, {names.object(hooks.unpack, 'UNPACK')})"
        message = "the saved-tensor hooks must be the two graph modules that it was compiled with"
        builder.raise_if(f"{hooks_of_call} != {pair}", "ValueError", f"compiled `{name}`: {message}")


@contextmanager
def without_hooks(builder: TextBuilder, parts: Partitioned) -> Iterator[None]:
    """Run what is added within without the caller's hooks, if the graphs contain them."""
    if parts.packing is None:
        yield
        return
    builder.add(
        f"deferred = {AUTOGRAD}._saved_tensors_hooks_set_tracing(True)  # the graphs contain the hooks"
    )
    with builder.block("try:"):
        yield
    with builder.block("finally:"):
        builder.add(f"{AUTOGRAD}._saved_tensors_hooks_set_tracing(deferred)")


SECOND_BACKWARD_MESSAGE = "Trying to backward through the graph a second time"
"""Programs match this text."""


def counts_backward_runs(parts: Partitioned) -> bool:
    """Return True if the backward must record that it has run, since autograd knows only by saved tensors."""
    if parts.backward is None or parts.joint.always_fails:
        return False
    if not all(is_number(saved_input.node) for saved_input in parts.saved_inputs):
        return False
    starts = [output.grad_fn for output in parts.joint.differentiated.outputs]
    reached = [{node for node in autograd_nodes([start]) if _has_saved_tensors(node)} for start in starts]
    return bool(reached) and bool(set.intersection(*reached))


def _has_saved_tensors(node: Any) -> bool:
    """Return True if an autograd node has saved a tensor, even if it is freed by now."""
    try:
        return any(isinstance(value, Tensor) for value in saved_values(node))
    except RuntimeError:  # freed, or changed since
        return True


def write_run_count(builder: TextBuilder, parts: Partitioned) -> None:
    """Write in `backward` the check and the update of `ctx.spent`, which `forward` has set to False."""
    with builder.step("reject a second backward", "in eager it fails, because the saved tensors are freed"):
        name = parts.joint.captured.subject.name
        advice = f"{SECOND_BACKWARD_MESSAGE}; pass `retain_graph=True` to the first"
        builder.raise_if("ctx.spent", "RuntimeError", f"the backward of `{name}` runs again: {advice}")
        builder.add("ctx.spent = not torch._C._autograd._get_current_graph_task_keep_graph()")


def reject_retain_grad_on_inputs(
    builder: TextBuilder, captured: Captured, meta: ViewAndMutationMeta, arguments: list[str]
) -> None:
    """Write the check that no caller called `retain_grad` on an input that autograd sees written to.

    In eager the input then retains the gradient of its new value, through all later uses of it.  Those uses
    are inside `CompiledFunction`, one autograd node, so the caller's tensor would miss their part.
    """
    flat = len(captured.flat_inputs)  # the rest are synthetic bases, which no caller has
    for info in meta.inputs:
        captured_input = captured.inputs[info.index]
        if (
            info.index < flat
            and info.seen_by_autograd
            and captured_input.requires_grad
            and not captured_input.is_leaf
        ):
            message = (
                f"compiled `{captured.subject.name}` writes to `{captured_input.slot.name}`, on which"
                " `retain_grad` was called: the gradient of the new value would be lost; pass a clone"
            )
            builder.raise_if(f"{arguments[info.index]}.retains_grad", "RuntimeError", message)


def reject_dual_tensors(builder: TextBuilder, captured: Captured, arguments: list[str]) -> None:
    """Write the check for forward-mode AD, whose tangents neither graphs nor `CompiledFunction` propagate."""
    tensors = [
        f"({captured_input.slot.name!r}, {name})"
        for name, captured_input in zip(arguments, captured.inputs, strict=True)
        if captured_input.is_tensor
        and captured_input.duplicate_of is None
        and (captured_input.fake.is_floating_point() or captured_input.fake.is_complex())
    ]
    if not tensors:
        return
    dual = "torch.autograd.forward_ad"
    with (
        builder.block(f"if {dual}._current_level >= 0:"),
        builder.block("if torch._C._functorch.peek_interpreter_stack() is None:"),
        builder.block(f"for name, tensor in ({', '.join(tensors)},):"),
        builder.block(f"if {dual}.unpack_dual(tensor).tangent is not None:"),
    ):
        before = f"compiled `{captured.subject.name}`: `"
        after = (
            "` is a dual tensor of forward-mode AD, which is not supported; "
            "call `torch.func.jvp` inside the compiled function"
        )
        builder.add(f"raise RuntimeError({before!r} + name + {after!r})")
