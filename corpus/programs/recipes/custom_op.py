"""A custom operator from torch.library.custom_op with a fake kernel and a gradient, compiled."""
# corpus: mode=training steps=10

import numpy as np
import torch
from torch import Tensor, nn


@torch.library.custom_op("corpus_recipes::numpy_sinc", mutates_args=())
def numpy_sinc(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sinc(x.detach().numpy())).to(x.dtype)


@numpy_sinc.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("corpus_recipes::numpy_sinc_backward", mutates_args=())
def numpy_sinc_backward(x: Tensor, grad: Tensor) -> Tensor:
    values = x.detach().numpy()
    scaled = np.pi * values
    safe = np.where(np.abs(values) < 1e-4, 1.0, scaled)
    slope = np.where(np.abs(values) < 1e-4, 0.0, np.pi * (np.cos(safe) * safe - np.sin(safe)) / safe**2)
    return grad * torch.from_numpy(slope).to(x.dtype)


@numpy_sinc_backward.register_fake
def _(x, grad):
    return torch.empty_like(grad)


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return numpy_sinc_backward(x, grad)


numpy_sinc.register_autograd(backward, setup_context=setup_context)


@torch.library.custom_op("corpus_recipes::count_visits", mutates_args={"counts"})
def count_visits(counts: Tensor, index: Tensor) -> None:
    np.add.at(counts.numpy(), index.numpy(), 1)


class SincNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.inputs = nn.Linear(2, width)
        self.outputs = nn.Linear(width, 1)
        self.register_buffer("counts", torch.zeros(8, dtype=torch.long))

    def forward(self, x):
        count_visits(self.counts, (x[:, 0] * 8).long().clamp(0, 7))
        return self.outputs(numpy_sinc(self.inputs(x)))


torch.manual_seed(0)
model = SincNet()
compiled = torch.compile(model, fullgraph=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
print("ready")
for step in range(10):
    x = torch.rand(64, 2)
    y = torch.sin(6 * x[:, :1]) * x[:, 1:]
    loss = nn.functional.mse_loss(compiled(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4g} visits {model.counts.tolist()}")
