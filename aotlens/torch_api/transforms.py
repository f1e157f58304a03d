"""The transforms of `torch.func`: vmap, grad, linearize and functionalize."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotlens.torch_api.checkpoints import RECORDING

__all__ = [
    "is_batched",
    "is_functional",
    "is_functionalized",
    "map_over_batch",
    "redirect_linearize",
    "unwrap_functorch",
]


def unwrap_functorch(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that the wrappers of `torch.func` (one for each `vmap` or `grad` around) stand for."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def is_batched(value: Any) -> bool:
    """Whether it stands for one gradient of several (`is_grads_batched`)."""
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_legacy_batchedtensor(value)


def map_over_batch(call: Callable[[list[Any]], Sequence[Any]], values: Sequence[Any]) -> list[Any]:
    """What a call gives for each of the batch's gradients, as one batch again.

    Autograd's tape lies below the batch: a custom function is part of it where it is called with each alone.
    """
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    plain = [torch._remove_batch_dim(value, level, 1, 0) if is_batched(value) else value for value in values]
    size = next(len(one) for one, value in zip(plain, values, strict=True) if is_batched(value))
    each = [
        call([one[at] if is_batched(value) else one for one, value in zip(plain, values, strict=True)])
        for at in range(size)
    ]
    return [
        None if results[0] is None else torch._add_batch_dim(torch.stack(results), 0, level)
        for results in zip(*each, strict=True)
    ]


def redirect_linearize(instead: Callable[[Callable[[Any], Any], Any], Any]) -> None:
    """Have `torch.func.linearize` in a recorded function make its linear map by `instead`.

    It is given the derivative, which takes a tuple of tangents, and the tangents that torch would trace it
    on; the map takes tangents one by one and gives flat results.
    """
    from torch._functorch import eager_transforms
    from torch.fx.experimental.const_fold import split_const_subgraphs

    transforms: Any = eager_transforms
    real = transforms.lazy_dynamo_disallow

    def part(function: Any) -> Any:
        """What stands for one of its two parts: the tracing of the derivative, and the computing ahead."""
        if getattr(RECORDING, "region", None) is None:
            return real(function)
        if function is split_const_subgraphs:
            return lambda linear_map: linear_map
        if function is transforms.make_fx:
            return lambda derivative: lambda tangents: instead(_with_detached_primals(derivative), tangents)
        return real(function)

    transforms.lazy_dynamo_disallow = part


def _with_detached_primals(derivative: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`torch.func.linearize`'s own derivative; for autograd its primals are constants."""
    cells = dict(zip(derivative.__code__.co_freevars, derivative.__closure__ or (), strict=True))
    primals = cells["flat_primals"]
    primals.cell_contents = tuple(primal.detach() for primal in primals.cell_contents)
    return derivative


def is_functional(tensor: Any) -> bool:
    """Whether `torch.func.functionalize` made the tensor."""
    return bool(torch._is_functional_tensor(tensor))


def is_functionalized() -> bool:
    """Whether what runs now stands under `torch.func.functionalize`."""
    level = torch._C._functorch.peek_interpreter_stack()
    return level is not None and level.key() == torch._C._functorch.TransformType.Functionalize
