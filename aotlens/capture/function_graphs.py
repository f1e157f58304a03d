"""Custom functions as Dynamo writes them: one graph for the forward, one for the backward.

Invariant: autograd sees of one what it sees of the user's own.  What its forward saved is checked for
changes; what it kept otherwise, its backward finds as it is by then.
"""

from typing import Any

from torch import Tensor, fx
from torch.autograd import Function

from aotlens.capture.origins import Origins


def apply_function(origins: Origins, graphs: tuple[Any, Any], args: Any, how: dict[str, Any]) -> Any:
    """Run the forward's graph, and let autograd run the backward's."""
    forward_graph, backward_graph = graphs
    checked, seen = set(how["saved_for_backward_idx"]), list[Any]()

    class Applied(Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            output, kept = fx.Interpreter(forward_graph).run(*args)
            seen[:] = kept
            return output

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            results = output if isinstance(output, (tuple, list)) else (output,)
            if how.get("dirty_idx"):
                ctx.mark_dirty(*(results[at] for at in how["dirty_idx"]))
            if how["non_differentiable_idx"]:
                ctx.mark_non_differentiable(*(results[at] for at in how["non_differentiable_idx"]))
            ctx.checked = [at for at, value in enumerate(seen) if at in checked and isinstance(value, Tensor)]
            ctx.save_for_backward(*(seen[at] for at in ctx.checked))
            ctx.kept = [None if at in ctx.checked else value for at, value in enumerate(seen)]
            seen.clear()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            kept = list(ctx.kept)
            for at, value in zip(ctx.checked, ctx.saved_tensors, strict=True):
                kept[at] = value
            with origins.users_code():
                return fx.Interpreter(backward_graph).run(*gradients, *kept)

    return Applied.apply(*args)
