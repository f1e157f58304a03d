"""Module text around saved tensors: hooks in the graphs, and the rejection of a second backward."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from aotlens.capture.autograd.graph_walk import autograd_nodes, saved_values
from aotlens.capture.events import EventKind
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
