"""Graphs above autograd, with composite operators and grad-mode switches as nodes.

Our recorder is below autograd, where composite operators are already decomposed, so torch's own tracer
records the function a second time.  Invariant: which inputs are mutated, and the order of values, follow the
pipeline's analysis.
"""

from typing import Any

import torch
from torch import fx

from aotlens.capture.error_translation import raising_span
from aotlens.capture.inputs.module_tensors import call_with_tensors
from aotlens.ir.slots import Buffer, MutatedInput, Parameter
from aotlens.joint.convention import forward_graph_outputs, with_node_metadata
from aotlens.joint.records import JointProgram
from aotlens.torch_api.aot import trace_above_autograd
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported

FROZEN = "cannot mutate tensors with frozen storage"
"""Torch's words, which programs match."""


def pre_dispatch_module(
    joint: JointProgram, mod: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.GraphModule:
    """Return the graph of a module with its operators as they are above autograd."""
    captured = joint.captured
    inputs = [item for item in captured.inputs if isinstance(item.fake, torch.Tensor) or item.node is None]
    owned = [item.slot.fqn for item in inputs if isinstance(item.slot, (Parameter, Buffer))]
    spec = pytree.tree_structure((args, kwargs))
    updated = [out.slot.index for out in forward_graph_outputs(joint) if isinstance(out.slot, MutatedInput)]

    def run(flat: list[Any]) -> list[Any]:
        call_args, call_kwargs = pytree.tree_unflatten(flat[len(owned) :], spec)
        tensors = dict(zip(owned, flat, strict=False))
        return pytree.tree_leaves(call_with_tensors(mod, tensors, call_args, call_kwargs))

    mode = captured.fake_mode
    values = [_fresh(item) for item in inputs]
    try:
        module = trace_above_autograd(run, values, updated, mode)
    except RuntimeError as error:
        if FROZEN not in str(error):
            raise
        raise unsupported("export-frozen-storage", raising_span(error) or captured.subject.span) from error
    return with_node_metadata(module)


def _fresh(item: Any) -> Any:
    """Return a fake tensor like the input before the function ran, or the Python value."""
    if not isinstance(item.fake, torch.Tensor):
        return item.argument
    return item.fake.detach().requires_grad_(item.requires_grad)
