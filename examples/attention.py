"""Causal attention in one function, to look at in an editor: what it saves, and what its counter costs."""

import torch
from torch import Tensor


# aotlens: example f32[8, 256, 64] grad, f32[64, 192] grad, f32[256]
def attend(x: Tensor, weight: Tensor, seen: Tensor) -> Tensor:
    """Each position looks at those before it; `seen` adds up how much each one is looked at."""
    query, key, value = (x @ weight).chunk(3, dim=-1)
    scores = query @ key.transpose(-1, -2) / 8
    future = torch.ones(256, 256, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
    seen.add_(weights.sum((0, 1)))
    return weights @ value


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 256, 64, requires_grad=True)
    weight = torch.randn(64, 192, requires_grad=True)
    seen = torch.zeros(256)
    torch.compile(attend)(x, weight, seen).sum().backward()
    print("most looked at: position", int(seen.argmax()))


if __name__ == "__main__":
    main()
