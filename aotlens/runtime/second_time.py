"""The lines that refuse a second backward where eager does and the compiled one keeps nothing that is freed.

Invariant: a second backward through a tape that keeps values raises, as in eager, unless the first retained
the graph; one through a tape that keeps none runs.
"""

from typing import Any

from torch import Tensor

from aotlens.capture.autograd_nodes import autograd_nodes
from aotlens.ir.slots import SavedInput
from aotlens.partition.records import Partitioned
from aotlens.partition.rules import is_number
from aotlens.runtime.builder import TextBuilder

SECOND_TIME = "Trying to backward through the graph a second time"
"""What programs match on."""


def is_counted(parts: Partitioned) -> bool:
    """Whether the backward must remember that it has run: autograd tells by what is saved, if anything is."""
    if parts.backward is None or parts.joint.always_fails:
        return False
    saved = [given.node for given in parts.backward.inputs if isinstance(given.slot, SavedInput)]
    if not all(map(is_number, saved)):
        return False
    starts = [output.grad_fn for output in parts.joint.differentiated.outputs]
    reached = [{node for node in autograd_nodes([start]) if _keeps(node)} for start in starts]
    return bool(reached) and bool(set.intersection(*reached))


def _keeps(node: Any) -> bool:
    """Whether a node of the tape has saved a tensor, be it freed by now."""
    names = [name for name in dir(node) if name.startswith("_saved_") or name == "saved_tensors"]
    try:
        values = [getattr(node, name) for name in names]
    except RuntimeError:  # freed, or changed since
        return True
    return any(isinstance(one, Tensor) for value in values for one in _items(value))


def _items(value: Any) -> Any:
    return value if isinstance(value, (tuple, list)) else (value,)


def write_count(builder: TextBuilder, parts: Partitioned) -> None:
    """In `backward`, where it is counted; `forward` has set `ctx.spent` to False."""
    with builder.step("refuse a second backward", "eager's has freed what it saved; this one saves nothing"):
        with builder.block("if ctx.spent:"):
            name = parts.joint.captured.subject.name
            message = (
                f"the backward of `{name}` runs again: {SECOND_TIME}; give the first `retain_graph=True`"
            )
            builder.add(f"raise RuntimeError({message!r})")
        builder.add("ctx.spent = not torch._C._autograd._get_current_graph_task_keep_graph()")
