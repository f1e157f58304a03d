"""Two losses whose Python forms in torch differ from their kernels, taken apart as the kernels do it.

Torch gives the loss of one unreduced sample a dimension, and for labels that end early (`-1`) it counts what
stands behind the end.  Promise: shapes, values and gradients are the kernels'.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotlens.torch_api.operators import get_decompositions

aten = torch.ops.aten
MEAN, SUM = 1, 2
"""The reductions, as operators have them."""


def multi_margin_loss(sample: Tensor, target: Tensor, *options: Any, **named: Any) -> Tensor:
    """One label a row."""
    op: Any = aten.multi_margin_loss.default
    loss = get_decompositions([op])[op](sample, target, *options, **named)
    return loss if target.dim() else loss.reshape(())


def multilabel_margin_loss(sample: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Labels of each row up to the first -1; gives the loss, and which places the labels name."""
    if sample.shape != target.shape or sample.dim() > 2:
        raise RuntimeError(f"inconsistent target size: {target.shape} for input of size: {sample.shape}")
    rows, labels = torch.atleast_2d(sample), torch.atleast_2d(target)
    places = rows.shape[1]
    order = torch.arange(places, device=target.device)
    end = torch.where(labels == -1, order, places).amin(1, keepdim=True)
    named = order < end
    labels = torch.where(named, labels, 0)
    is_target = torch.zeros_like(rows).scatter_add(1, labels, named.to(rows.dtype)).sign().detach()
    margins = torch.relu(1 - rows.gather(1, labels).unsqueeze(2) + rows.unsqueeze(1))
    counted = named.unsqueeze(2) & (is_target == 0).unsqueeze(1)
    loss = torch.where(counted, margins, 0).sum((1, 2)) / places
    if reduction == MEAN:
        loss = loss.mean()
    elif reduction == SUM:
        loss = loss.sum()
    elif target.dim() < 2:
        loss = loss.reshape(())
    return loss, is_target.reshape(target.shape)


AS_THE_KERNEL: dict[Any, Callable[..., Any]] = {
    aten.multi_margin_loss.default: multi_margin_loss,
    aten.multilabel_margin_loss_forward.default: multilabel_margin_loss,
}
"""By operator; in place of torch's Python kernels, fake kernels and decompositions."""
