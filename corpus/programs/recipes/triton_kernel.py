"""A user-written Triton kernel behind torch.library.triton_op, with a fallback where there is no GPU."""
# corpus: mode=training steps=8

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.library import triton_op, wrap_triton


@triton.jit
def fused_relu_square_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.maximum(x, 0.0)
    tl.store(out_ptr + offsets, y * y, mask=mask)


@triton_op("corpus_recipes::relu_square", mutates_args={})
def relu_square(x: Tensor) -> Tensor:
    if x.device.type == "cpu":
        return torch.relu(x).square()
    out = torch.empty_like(x)
    n = x.numel()
    wrap_triton(fused_relu_square_kernel)[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out


def backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * 2 * torch.relu(x)


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


relu_square.register_autograd(backward, setup_context=setup_context)


class FeedForward(nn.Module):
    """The feed-forward layer of Primer: squared ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(relu_square(self.up(x)))


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = nn.Sequential(FeedForward(24), FeedForward(24), nn.Linear(24, 2)).to(device)
    compiled = torch.compile(model, fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    x = torch.randn(64, 24, device=device)
    y = torch.stack([x.norm(dim=1), x.amax(1)], dim=1)
    print("ready")
    for step in range(8):
        loss = nn.functional.mse_loss(compiled(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}")
