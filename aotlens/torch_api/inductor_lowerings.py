"""Changes to Inductor's lowerings and scheduler, in force while it compiles a graph."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch._higher_order_ops.effects import with_effects
from torch._ops import OpOverload

from aotlens.torch_api.operators import attribute_text

__all__ = [
    "OWN_LOWERINGS",
    "escape_kernel_keywords",
    "named_launches",
    "own_lowerings",
    "random_ops_in_order",
]

OWN_LOWERINGS = (
    "a view's start, a mask's draw, draws and effects in order, the nodes of each kernel, a launch's name"
)
"""What is done with Inductor's code here: it keeps what it made of a graph, and finds it by this too."""


@contextmanager
def own_lowerings() -> Iterator[None]:
    """Let Inductor know where a view starts, and call the draw of a mask as a function.

    The draw gives a new tensor, in eager's layout.
    On a CPU it lowers it to a write into memory that it fills first, and may fuse the filling with what reads
    the mask, which then sees no draw; and numbers are drawn in the order of the memory.
    """
    from torch._inductor import lowering

    draw, start = torch.ops.aten.bernoulli.p, torch.ops.aten.sym_storage_offset.default
    before, effects = lowering.lowerings[draw], lowering.lowerings[with_effects]
    lowering.lowerings[with_effects] = partial(_lower_effect_in_order, effects)
    lowering.lowerings[start] = _lower_storage_offset
    lowering.lowerings[draw] = lowering.fallback_handler(draw, add_to_fallback_set=False)
    lowering.add_layout_constraint(draw, lowering.constrain_to_fx_strides)
    try:
        yield
    finally:
        lowering.lowerings[draw], lowering.lowerings[with_effects] = before, effects
        del lowering.lowerings[start]
        lowering._maybe_layout_constraints.pop(draw)


def _lower_effect_in_order(lower: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Inductor's lowering of an effect, which notes what comes before it by the name of a buffer, and looks
    for it by the name of the operation.

    What a torchbind object is given or gives is memory that it may keep.
    """
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    first = len(graph.operations)
    result = lower(*args, **kwargs)
    for operation in graph.operations[first:]:
        noted = graph.additional_star_deps[operation.get_name()]
        graph.additional_star_deps[operation.get_operation_name()] |= noted
        if args[1] is torch.ops.higher_order.call_torchbind or _takes_torchbind_object(args):
            graph.never_reuse_buffers |= {operation.get_name(), *operation.get_read_names()}
    return result


def _takes_torchbind_object(args: tuple[Any, ...]) -> bool:
    from torch._inductor.ir import TorchBindObject

    return any(isinstance(arg, TorchBindObject) for arg in args)


@contextmanager
def named_launches(inputs: list[Any]) -> Iterator[None]:
    """Let Inductor write down which nodes every launch of a Triton kernel computes.

    It does so by the kernel's name, and gives none of a reduction along both axes: then it is the kernel that
    was defined just before.
    """
    if not any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in inputs):
        yield
        return
    from torch._inductor.codegen.triton import TritonScheduling

    scheduling: Any = TritonScheduling
    define, comment = scheduling.define_kernel, scheduling.codegen_comment
    defined: list[str] = []

    def define_and_note(self: Any, *args: Any, **kwargs: Any) -> Any:
        defined.append(define(self, *args, **kwargs))
        return defined[-1]

    def comment_with_name(self: Any, node_schedule: Any, kernel_name: Any = None) -> None:
        comment(self, node_schedule, kernel_name or (defined[-1] if defined else None))

    scheduling.define_kernel, scheduling.codegen_comment = define_and_note, comment_with_name
    try:
        yield
    finally:
        scheduling.define_kernel, scheduling.codegen_comment = define, comment


@contextmanager
def random_ops_in_order() -> Iterator[None]:
    """Keep calls that draw from a generator in the graph's order.

    Inductor knows of no order between them, and moves them with what reads them, or for the sake of memory.
    """
    from torch._inductor.scheduler import Scheduler
    from torch._inductor.virtualized import V

    scheduler: Any = Scheduler
    before = scheduler.compute_dependencies

    def with_order(self: Any) -> None:
        draws = [node for node in self.nodes if _is_random_op(getattr(node.node, "op_overload", None))]
        for earlier, later in pairwise(draws):
            V.graph.additional_buffer_deps[later.get_name()].add(earlier.get_outputs()[0].get_name())
        before(self)

    scheduler.compute_dependencies = with_order
    try:
        yield
    finally:
        scheduler.compute_dependencies = before


def _is_random_op(op: Any) -> bool:
    return isinstance(op, OpOverload) and torch.Tag.nondeterministic_seeded in op.tags


def _lower_storage_offset(view: Any) -> Any:
    """Where in memory a view starts: Inductor's code for it gives 0 where that is a symbol."""
    from torch._inductor.virtualized import V

    value = V.graph.current_node.meta["val"]
    return value.node.expr if isinstance(value, torch.SymInt) else int(value)


def escape_kernel_keywords() -> None:
    """As `escape_operator_keywords`, in Inductor's text."""
    from torch._inductor import ir

    kind: Any = ir.ExternKernel
    named = kind.set_python_kernel_name
    if hasattr(named, "writes_keywords"):
        return

    def set_name(self: Any, name: str | None) -> None:
        named(self, name)
        if self.python_kernel_name:
            self.python_kernel_name = attribute_text(self.python_kernel_name)

    set_name.writes_keywords = True  # type: ignore[attr-defined]
    kind.set_python_kernel_name = set_name
