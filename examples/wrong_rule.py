"""What `aotlens verify` finds: one of Inductor's rules is replaced by a wrong one, here, on purpose.

Run: aotlens verify examples/wrong_rule.py --minimise small.py
"""

import torch
import torch._inductor.decomposition as rules
from torch import Tensor


def rough_gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return x * torch.sigmoid(1.5 * x)


rules.decompositions[torch.ops.aten.gelu.default] = rough_gelu


# aotlens: example f32[8, 16] grad, f32[16, 4] grad
def layer(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    hidden = torch.sin(x) @ weight
    active = torch.nn.functional.gelu(hidden)
    return active.cos().sum(), hidden.mean()
