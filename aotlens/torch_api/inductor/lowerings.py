"""Changes to Inductor's lowerings and scheduler, in force while it compiles a graph."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch._ops import OpOverload

from aotlens.torch_api.operators import attribute_text
from aotlens.torch_api.patches.scopes import Current, around, handled

__all__ = [
    "OWN_LOWERINGS",
    "codegen_comment",
    "compute_dependencies",
    "define_kernel",
    "is_alive_anyway",
    "layout_of_bernoulli",
    "lower_bernoulli",
    "lower_effect",
    "lower_storage_offset",
    "set_python_kernel_name",
]

OWN_LOWERINGS = (
    "a view's start, a random mask, random operators and effects in order, the nodes of each kernel,"
    " a launch's name, inputs that end"
)
"""The changes below, in words: part of the key of Inductor's code in our cache."""


def lower_bernoulli(original: Any, current: Current) -> Any:
    """Inductor's lowering of the random numbers of a mask: a call, which returns a new tensor.

    On a CPU, Inductor lowers it to a write into memory that it fills first, and may fuse the filling with
    what reads the mask, which then sees no random numbers.
    """
    from torch._inductor import lowering

    return lowering.fallback_handler(torch.ops.aten.bernoulli.p, add_to_fallback_set=False)


def layout_of_bernoulli(original: Any, current: Current) -> Any:
    """The layout of its input: eager's, since random numbers are generated in the order of the memory."""
    from torch._inductor import lowering

    return lowering.constrain_to_fx_strides


@around
def lower_effect(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Inductor's lowering of an operator with a side effect, in the graph's order.

    Inductor notes what precedes an effect by the name of a buffer, and looks it up by the name of the
    operation.  A torchbind object may keep the memory of its inputs and outputs, so that is never reused.
    """
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    operator = args[1]  # after the token
    first = len(graph.operations)
    result = original(*args, **kwargs)
    for operation in graph.operations[first:]:
        noted = graph.additional_star_deps[operation.get_name()]
        graph.additional_star_deps[operation.get_operation_name()] |= noted
        if operator is torch.ops.higher_order.call_torchbind or _takes_torchbind_object(args):
            graph.never_reuse_buffers |= {operation.get_name(), *operation.get_read_names()}
    return result


def _takes_torchbind_object(args: tuple[Any, ...]) -> bool:
    from torch._inductor.ir import TorchBindObject

    return any(isinstance(arg, TorchBindObject) for arg in args)


@handled
def define_kernel(
    names: list[str], original: Callable[..., str], self: Any, *args: Any, **kwargs: Any
) -> str:
    """How Inductor defines a Triton kernel: its name is appended to `names`, for `codegen_comment`."""
    names.append(original(self, *args, **kwargs))
    return names[-1]


@handled
def codegen_comment(
    names: list[str], original: Callable[..., None], self: Any, node_schedule: Any, kernel_name: Any = None
) -> None:
    """How Inductor notes which nodes a launch computes: by the kernel's name.

    For a reduction along both axes Inductor passes no name: it is the kernel that was defined just before.
    """
    original(self, node_schedule, kernel_name or (names[-1] if names else None))


@around
def compute_dependencies(original: Callable[..., Any], self: Any) -> None:
    """The dependencies of Inductor's scheduler, with the order of calls that take from a generator.

    Inductor knows of no order between them, and moves them with what reads them, or for the sake of memory.
    """
    from torch._inductor.virtualized import V

    calls = [node for node in self.nodes if _is_random_op(getattr(node.node, "op_overload", None))]
    for earlier, later in pairwise(calls):
        V.graph.additional_buffer_deps[later.get_name()].add(earlier.get_outputs()[0].get_name())
    original(self)


def _is_random_op(op: Any) -> bool:
    return isinstance(op, OpOverload) and torch.Tag.nondeterministic_seeded in op.tags


@around
def is_alive_anyway(original: Callable[[Any], bool], dependency: Any) -> bool:
    """Whether Inductor's plan of the memory counts an input as alive throughout: by what the caller keeps.

    Inductor reads that from names such as `primals_1`, and orders the kernels for the lowest peak.  Inside a
    subgraph it goes by its own names.
    """
    from torch._inductor.virtualized import V

    ending = vars(V.graph.module).get("inputs_that_end")
    if ending is None:
        return original(dependency)
    return dependency.name in V.graph.graph_inputs and dependency.name not in ending


@around
def lower_storage_offset(original: None, view: Any) -> Any:
    """Where a view starts in its storage, which Inductor does not lower: it has 0 where that is a symbol."""
    from torch._inductor.virtualized import V

    value = V.graph.current_node.meta["val"]
    return value.node.expr if isinstance(value, torch.SymInt) else int(value)


@around
def set_python_kernel_name(original: Callable[..., None], self: Any, name: str | None) -> None:
    """How Inductor's text names an operator: as Python, also where a part is a keyword."""
    original(self, name)
    if self.python_kernel_name:
        self.python_kernel_name = attribute_text(self.python_kernel_name)
