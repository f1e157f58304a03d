"""Module text around saved tensors: hooks in the graphs, and the rejection of a second backward."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from aotlens.capture.autograd.graph_walk import autograd_nodes
from aotlens.capture.events import EventKind
from aotlens.ir.render import Names
from aotlens.ir.slots import SavedInput
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
        if parts.packing is None:
            if parts.joint.recorded.events.has(EventKind.HIDDEN_CHANGE) and not captured.has_hooks:
                _reject_hooks(builder, captured.subject.name)
            return
        hooks = parts.packing.hooks
        pair = f"({names.object(hooks.pack, 'PACK')}, {names.object(hooks.unpack, 'UNPACK')})"
        with builder.block(f"if {AUTOGRAD}._top_saved_tensors_default_hooks(True) != {pair}:"):
            message = (
                f"compiled `{captured.subject.name}`: the saved-tensor hooks must be the two graph modules"
                " that it was compiled with"
            )
            builder.add(f"raise ValueError({message!r})")


def _reject_hooks(builder: TextBuilder, name: str) -> None:
    """Reject hooks, which could hide a change that the backward expects in saved tensors."""
    with builder.block(f"if {AUTOGRAD}._top_saved_tensors_default_hooks(True) is not None:"):
        message = (
            f"compiled `{name}`: it mutates a tensor that requires grad where autograd does not see it, and"
            " was compiled without saved-tensor hooks; compile it under the hooks, or call it without them"
        )
        builder.add(f"raise ValueError({message!r})")


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
    saved = [
        graph_input.node for graph_input in parts.backward.inputs if isinstance(graph_input.slot, SavedInput)
    ]
    if not all(map(is_number, saved)):
        return False
    starts = [output.grad_fn for output in parts.joint.differentiated.outputs]
    reached = [{node for node in autograd_nodes([start]) if _has_saved_tensors(node)} for start in starts]
    return bool(reached) and bool(set.intersection(*reached))


def _has_saved_tensors(node: Any) -> bool:
    """Return True if an autograd node has saved a tensor, even if it is freed by now."""
    names = [name for name in dir(node) if name.startswith("_saved_") or name == "saved_tensors"]
    try:
        values = [getattr(node, name) for name in names]
    except RuntimeError:  # freed, or changed since
        return True
    return any(isinstance(item, Tensor) for value in values for item in _items(value))


def _items(value: Any) -> Any:
    return value if isinstance(value, (tuple, list)) else (value,)


def write_run_count(builder: TextBuilder, parts: Partitioned) -> None:
    """Write in `backward` the check and the update of `ctx.spent`, which `forward` has set to False."""
    with builder.step("reject a second backward", "in eager it fails, because the saved tensors are freed"):
        with builder.block("if ctx.spent:"):
            name = parts.joint.captured.subject.name
            advice = f"{SECOND_BACKWARD_MESSAGE}; pass `retain_graph=True` to the first"
            message = f"the backward of `{name}` runs again: {advice}"
            builder.add(f"raise RuntimeError({message!r})")
        builder.add("ctx.spent = not torch._C._autograd._get_current_graph_task_keep_graph()")
