"""Compare the tensors of two runs of a program at exit.

Invariant: an error is relative to the largest element of the reference tensor, so that it means the same for
a weight and for a gradient of any size.  Only a gradient that is pure rounding (of a bias before a batch
norm) is relative to the other gradients.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from corpus.records import TensorError, Values

if TYPE_CHECKING:
    from torch import Tensor

NEGLIGIBLE_GRADIENT = 1e-2
"""A gradient below this part of the program's largest one is compared relative to that part.

Sums of thousands of terms are off by 1e-6 of their largest: 2 % of a gradient that cancels out to 1e-4.
"""

__all__ = ["TOLERANCES", "compare_dumps", "compare_tensors"]

TOLERANCES = {"float64": 1e-7, "float32": 1e-3, "float16": 1e-2, "bfloat16": 3e-2}
"""Relative error after all steps of a program that counts as equal; other dtypes are equal bit by bit."""


def compare_dumps(folder: Path, reference: Path) -> Values:
    """Compare what the observer wrote in two folders."""
    return compare_tensors(_load(folder), _load(reference))


def _load(folder: Path) -> "dict[str, Tensor]":
    import torch  # only a process that compares needs it

    ranks = sorted(folder.glob("rank*.pt"))
    return {
        f"{path.stem}:{name}" if len(ranks) > 1 else name: tensor.to_dense() if tensor.is_sparse else tensor
        for path in ranks
        for name, tensor in torch.load(path, weights_only=True).items()
    }


def compare_tensors(tensors: "dict[str, Tensor]", reference: "dict[str, Tensor]") -> Values:
    """Return the error of each tensor that both have."""
    gradients = [_largest(tensor) for name, tensor in reference.items() if name.endswith(".grad")]
    floor = NEGLIGIBLE_GRADIENT * max(gradients, default=0.0)
    errors = tuple(
        TensorError(
            name,
            str(reference[name].dtype).removeprefix("torch."),
            _error(tensors[name], reference[name], floor if name.endswith(".grad") else 0.0),
        )
        for name in sorted(tensors.keys() & reference.keys())
    )
    return Values(errors, tuple(sorted(tensors.keys() ^ reference.keys())))


def _largest(tensor: "Tensor") -> float:
    import torch

    finite = torch.where(tensor.isfinite(), tensor, 0)
    return finite.abs().max().item() if tensor.numel() else 0.0


def _error(tensor: "Tensor", reference: "Tensor", floor: float) -> float:
    """Return the error; infinite for another shape or dtype, or a value that is finite in only one of
    them.
    """
    import torch

    if tensor.shape != reference.shape or tensor.dtype != reference.dtype:
        return math.inf
    if not reference.numel():
        return 0.0
    if not (reference.is_floating_point() or reference.is_complex()):
        return 0.0 if torch.equal(tensor, reference) else math.inf
    wide = torch.complex128 if reference.is_complex() else torch.float64
    ours, theirs = tensor.to(wide), reference.to(wide)
    finite = theirs.isfinite()
    if not torch.equal(ours.isfinite(), finite) or not torch.equal(ours.isnan(), theirs.isnan()):
        return math.inf
    largest = max(_largest(theirs), floor)
    difference = torch.where(finite, ours - theirs, 0).abs().max().item()
    return difference / largest if largest else (0.0 if not difference else math.inf)
