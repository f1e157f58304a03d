"""Custom autograd functions in compiled code: a straight-through estimator and a memory-saving activation."""
# corpus: mode=training steps=10

import torch
from torch import nn


class RoundStraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class MemoryEfficientSwish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class ClampGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-ctx.limit, ctx.limit), None


class Quantised(nn.Module):
    def __init__(self, inputs, outputs, levels=16):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.scale = nn.Parameter(torch.tensor(1.0 / levels))

    def forward(self, x):
        weight = RoundStraightThrough.apply(self.linear.weight / self.scale) * self.scale
        return nn.functional.linear(x, weight, self.linear.bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Quantised(8, 32), Quantised(32, 1)

    def forward(self, x):
        h = MemoryEfficientSwish.apply(self.first(x))
        return self.second(ClampGradient.apply(h, 0.01))


def main():
    torch.manual_seed(0)
    model = Net()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    x = torch.randn(128, 8)
    y = x.square().sum(1, keepdim=True).sqrt()
    print("ready")
    for step in range(10):
        loss = (compiled(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g} scale {model.first.scale.item():.4g}")


if __name__ == "__main__":
    main()
