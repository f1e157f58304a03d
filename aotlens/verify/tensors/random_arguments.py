"""Replace the values of a call's arguments by random ones.

Promise: sizes, strides, dtypes, aliasing and `requires_grad` stay.  A float is sampled from the range or the
distribution of the original values, an integer from their range, and a mask keeps its share of True.
"""

from collections.abc import Collection

import torch
from torch import Tensor

from aotlens.torch_api.operators import pytree
from aotlens.verify.tensors.clone import whole_storage
from aotlens.verify.tensors.prepared_call import PreparedCall, copies, prepare_call

MOST_FLAG_VALUES = 2
"""Floats with at most this many different values are flags: they are shuffled, not sampled."""


def with_random_values(
    original: PreparedCall, seed: int, positions: Collection[int] | None = None
) -> PreparedCall:
    """Return a copy with random values; `positions` are the arguments to change, None for all."""
    (copied,) = copies(original, 1, keep_fn=True)
    generator = torch.Generator().manual_seed(seed)
    filled: set[int] = set()
    to_fill = [value for index, value in enumerate(copied.args) if positions is None or index in positions]
    unchanged = [
        value for index, value in enumerate(copied.args) if positions is not None and index not in positions
    ]
    filled |= {tensor.untyped_storage()._cdata for tensor in _plain(unchanged)}
    for tensor in _plain((to_fill, dict(copied.kwargs))):
        storage = tensor.untyped_storage()
        if storage._cdata not in filled and storage.nbytes():
            filled.add(storage._cdata)
            _fill(tensor, generator)
    return prepare_call(original.fn, copied.args, copied.kwargs, original.labels)


def _plain(values: object) -> list[Tensor]:
    """Return the tensors whose memory can be filled: strided, and no wrappers."""
    leaves = pytree.tree_leaves(values)
    return [
        leaf
        for leaf in leaves
        if isinstance(leaf, Tensor) and leaf.layout == torch.strided and not leaf.is_meta and _is_plain(leaf)
    ]


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter)


def _fill(tensor: Tensor, generator: torch.Generator) -> None:
    """Fill the whole storage, so that tensors that share it still agree."""
    whole = whole_storage(tensor.untyped_storage(), tensor)
    with torch.no_grad():
        whole.copy_(_random_like(whole, generator))


def _random_like(original: Tensor, generator: torch.Generator) -> Tensor:
    """Return random values with the range or distribution of these values."""
    if original.dtype.is_complex:
        parts = torch.view_as_real(original)
        return torch.view_as_complex(_random_like(parts.flatten(), generator).view(parts.shape).contiguous())
    wide = original.detach().cpu()
    if not original.dtype.is_floating_point:
        return _integers(wide, generator)
    values = wide.double()
    if not bool(torch.isfinite(values).all()) or values.unique().numel() <= MOST_FLAG_VALUES:
        return _shuffled(wide, generator)
    low, high = float(values.min()), float(values.max())
    if low >= 0:  # no number below: the function may take a square root or a logarithm
        return low + (high - low) * torch.rand(values.shape, generator=generator, dtype=torch.float64)
    normal = torch.randn(values.shape, generator=generator, dtype=torch.float64)
    return values.mean() + normal * values.std(correction=0)


def _integers(original: Tensor, generator: torch.Generator) -> Tensor:
    if original.dtype == torch.bool:
        return _shuffled(original, generator)
    low, high = int(original.min()), int(original.max())
    if low == high:
        return original
    return torch.randint(low, high + 1, original.shape, generator=generator)


def _shuffled(original: Tensor, generator: torch.Generator) -> Tensor:
    """Return the same values in random order."""
    return original[torch.randperm(original.numel(), generator=generator)]
