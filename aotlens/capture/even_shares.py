"""The gradient of `max`, `min` and `median`, which all elements that have the value share evenly.

Autograd multiplies a mask of them by a share, where its kernels fill the shares in.  The two differ where no
element has the value since a write that autograd does not see: 0 · infinity.  Promise: the kernels' zeros.
"""

from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.ir.program import Node

MULTIPLIED = aten.mul.Tensor
FILLED = aten.where.ScalarOther


def is_shared_evenly(mask: Any, share: Any) -> bool:
    """Whether the factors of a product, as nodes, are a mask and what each of its elements gets."""
    if type(mask) is not Node or mask.val.dtype is not torch.bool or type(share) is not Node:
        return False
    count = share.args[1] if share.op is aten.div.Tensor else None
    return type(count) is Node and count.op is aten.sum.default and count.args[0] is mask
