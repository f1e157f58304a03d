"""Provide torchvision's own operators in Python if its binary extension cannot be loaded.

The published torchvision is built for CUDA: with a CPU build of torch its extension does not load, and
`import torchvision` fails.  `install()` defines all of torchvision's operators by their schemas, with CPU
kernels for `nms` and `roi_align` (forward and backward).  Meta kernels, autograd and autocast stay
torchvision's own.

Invariant: `install()` imports neither torch nor torchvision, so it costs nothing in programs without them;
and it changes nothing if the extension loads.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from torch.library import Library

EXTENSION = "torchvision.extension"

POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
SAMPLED = f"{POOLED}, int sampling_ratio"
SHAPE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
QUANTIZED = "float input_scale, int input_zero_point, float rois_scale, int rois_zero_point"
DEFORM = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
    "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, "
    "bool use_mask"
)
ROIS = "Tensor input, Tensor rois"
GRAD = "Tensor grad, Tensor rois"
MAPPED = f"{GRAD}, Tensor channel_mapping"
SCHEMAS = (
    "_cuda_version() -> int",
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    f"roi_align({ROIS}, {SAMPLED}, bool aligned) -> Tensor",
    f"_roi_align_backward({GRAD}, {POOLED}, {SHAPE}, int sampling_ratio, bool aligned) -> Tensor",
    f"qroi_align({ROIS}, {QUANTIZED}, {SAMPLED}, bool aligned) -> Tensor",
    f"ps_roi_align({ROIS}, {SAMPLED}) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward({MAPPED}, {SAMPLED}, {SHAPE}) -> Tensor",
    f"roi_pool({ROIS}, {POOLED}) -> (Tensor, Tensor)",
    f"_roi_pool_backward({GRAD}, Tensor argmax, {POOLED}, {SHAPE}) -> Tensor",
    f"ps_roi_pool({ROIS}, {POOLED}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward({MAPPED}, {POOLED}, {SHAPE}) -> Tensor",
    f"deform_conv2d({DEFORM}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
"""All operators that torchvision names when it is imported."""

_libraries: list[Library] = []
"""torch.library removes an operator when its Library object is collected."""


def install() -> None:
    """Define torchvision's operators as soon as the program imports torchvision."""
    if EXTENSION not in sys.modules:
        sys.meta_path.insert(0, _ExtensionFinder())


class _ExtensionFinder(MetaPathFinder):
    """Find `torchvision.extension` as usual, and add the operators behind its own code."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != EXTENSION:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ExtensionLoader(spec.loader)
        return spec


class _ExtensionLoader(Loader):
    """Run the module, then register the operators if its binary did not load."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        if not module._has_ops():
            define_operators()
            module._has_ops = lambda: True  # type: ignore[attr-defined]


def define_operators() -> None:
    """Define torchvision's operators, with CPU kernels for `nms` and `roi_align`."""
    import torch  # not above: a program without torchvision should not import torch for this

    library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    library.impl("_cuda_version", lambda: -1, "CompositeExplicitAutograd")
    library.impl("nms", nms, "CPU")
    library.impl("roi_align", roi_align, "CPU")
    library.impl("_roi_align_backward", roi_align_backward, "CPU")
    _libraries.append(library)


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the indices of the boxes that no box with a higher score overlaps by more than the threshold.

    `dets` is `f32[box, 4]`, `scores` is `f32[box]`; the indices are in descending order of scores.
    """
    order = scores.argsort(descending=True, stable=True)
    overlaps = _pairwise_iou(dets[order]).gt(iou_threshold).triu(1)
    suppressed = overlaps.new_zeros(len(overlaps))
    for index, row in enumerate(overlaps):
        if not suppressed[index]:
            suppressed |= row
    return order[~suppressed]


def _pairwise_iou(boxes: Tensor) -> Tensor:
    """Return the intersection over union of all pairs of boxes, `f32[box, box]`."""
    import torch

    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    top_left = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    bottom_right = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    intersection = (bottom_right - top_left).clamp(min=0).prod(-1)
    return intersection / (areas[:, None] + areas[None, :] - intersection)


def roi_align(  # noqa: PLR0913, the parameters of torchvision's operator
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Return the average of the bilinear samples in each bin: `[region, channel, row, column]`."""
    import torch

    bins, sampling = (pooled_height, pooled_width), (sampling_ratio, aligned)
    rows, columns = _bin_weights(rois, spatial_scale, bins, input.shape[-2:], sampling)
    regions = input[rois[:, 0].long()]
    return torch.einsum("kph,kchw,kqw->kcpq", rows, regions, columns)


def roi_align_backward(  # noqa: PLR0913, the parameters of torchvision's operator
    grad: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Return the gradient of `roi_align` with respect to its input."""
    import torch

    rows, columns = _bin_weights(
        rois, spatial_scale, (pooled_height, pooled_width), (height, width), (sampling_ratio, aligned)
    )
    regions = torch.einsum("kph,kcpq,kqw->kchw", rows, grad, columns)
    return grad.new_zeros(batch_size, channels, height, width).index_add_(0, rois[:, 0].long(), regions)


def _bin_weights(
    rois: Tensor, spatial_scale: float, bins: tuple[int, int], size: Sequence[int], sampling: tuple[int, bool]
) -> tuple[Tensor, Tensor]:
    """Return the weight of each row, and of each column, of the input in each bin of each region.

    The samples lie on a grid along the axes, so bilinear interpolation is a product of one weight per axis.
    """
    sampling_ratio, aligned = sampling
    left, top, right, bottom = (rois[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)).unbind(1)
    least = -float("inf") if aligned else 1.0
    height, width = (bottom - top).clamp(min=least), (right - left).clamp(min=least)
    rows = _axis_weights(top, height / bins[0], bins[0], size[0], sampling_ratio)
    return rows, _axis_weights(left, width / bins[1], bins[1], size[1], sampling_ratio)


def _axis_weights(start: Tensor, bin_size: Tensor, bins: int, size: int, sampling_ratio: int) -> Tensor:
    """Return `[region, bin, size]`: how much each position along one axis counts in each bin."""
    import torch

    samples = torch.full_like(start, sampling_ratio) if sampling_ratio > 0 else bin_size.ceil()
    index = torch.arange(max(int(samples.max()), 1) if len(samples) else 1, dtype=start.dtype)
    counts = samples.clamp(min=1)[:, None, None]
    offsets = torch.arange(bins, dtype=start.dtype)[:, None] + (index + 0.5) / counts
    positions = start[:, None, None] + offsets * bin_size[:, None, None]
    inside = (positions >= -1) & (positions <= size) & (index < samples[:, None, None])
    positions = positions.clamp(0, size - 1)
    low = positions.floor()
    fraction = positions - low
    weights = start.new_zeros(len(start), bins, size)
    weights.scatter_add_(2, low.long(), (1 - fraction) * inside / counts)
    return weights.scatter_add_(2, (low.long() + 1).clamp(max=size - 1), fraction * inside / counts)
