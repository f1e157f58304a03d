"""The transforms of `torch.func`: vmap, grad, linearize and functionalize."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotlens.torch_api.patches.scopes import handled

__all__ = [
    "is_batched",
    "is_functional",
    "is_functionalized",
    "linearize_part",
    "map_over_batch",
    "unwrap_functorch",
]


def unwrap_functorch(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor inside the wrappers of `torch.func` (one per `vmap` or `grad`)."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def is_batched(value: Any) -> bool:
    """Return True if the value is a batch of gradients (`is_grads_batched`)."""
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_legacy_batchedtensor(value)


def map_over_batch(call: Callable[[list[Any]], Sequence[Any]], values: Sequence[Any]) -> list[Any]:
    """Call a function for each gradient of a batch, and return the outputs as a batch again.

    The autograd graph is below the batch: a custom function is part of it if it is called with each gradient
    alone.
    """
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    plain = [torch._remove_batch_dim(value, level, 1, 0) if is_batched(value) else value for value in values]
    size = next(len(unbatched) for unbatched, value in zip(plain, values, strict=True) if is_batched(value))
    each = [
        call(
            [
                unbatched[index] if is_batched(value) else unbatched
                for unbatched, value in zip(plain, values, strict=True)
            ]
        )
        for index in range(size)
    ]
    return [
        None if results[0] is None else torch._add_batch_dim(torch.stack(results), 0, level)
        for results in zip(*each, strict=True)
    ]


@handled
def linearize_part(handler: Any, original: Callable[..., Any], function: Any) -> Any:
    """One of the two parts of `torch.func.linearize`, to trace the derivative and to compute ahead.

    The linear map is `handler.make_linear_map(derivative, tangents)`: the derivative takes a tuple of
    tangents, and `tangents` are those that torch would trace it on.  The map takes tangents one by one, and
    returns flat results.
    """
    name = getattr(function, "__name__", "")
    if name == "split_const_subgraphs":
        return lambda linear_map: linear_map
    if name == "make_fx":
        make = handler.make_linear_map
        return lambda derivative: lambda tangents: make(_with_detached_primals(derivative), tangents)
    return original(function)


def _with_detached_primals(derivative: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Detach the primals that `torch.func.linearize`'s own derivative holds, in place; return the derivative.

    In eager torch traces the derivative, and the primals are constants of that graph: the outputs of the
    linear map have no gradient for them.  Here the derivative itself is recorded, on the caller's tensors.
    """
    cells = dict(zip(derivative.__code__.co_freevars, derivative.__closure__ or (), strict=True))
    primals = cells["flat_primals"]
    primals.cell_contents = tuple(primal.detach() for primal in primals.cell_contents)
    return derivative


def is_functional(tensor: Any) -> bool:
    """Return True if `torch.func.functionalize` made the tensor."""
    return bool(torch._is_functional_tensor(tensor))


def is_functionalized() -> bool:
    """Return True if this runs under `torch.func.functionalize`."""
    level = torch._C._functorch.peek_interpreter_stack()
    return level is not None and level.key() == torch._C._functorch.TransformType.Functionalize
