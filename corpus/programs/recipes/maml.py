"""Meta-learning of sine waves: a compiled meta loss takes gradient steps per task with grad and vmap."""
# corpus: mode=training steps=10

import math

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

INNER_STEPS, INNER_RATE = 2, 0.03

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))


def task_loss(params, x, y):
    return nn.functional.mse_loss(functional_call(net, params, (x,)), y)


def adapted(params, x, y):
    """Take a few gradient steps on the support set; the outer loss differentiates through them."""
    for _ in range(INNER_STEPS):
        gradients = grad(task_loss)(params, x, y)
        params = {name: value - INNER_RATE * gradients[name] for name, value in params.items()}
    return params


@torch.compile
def meta_loss(params, support, query):
    def of_task(support_x, support_y, query_x, query_y):
        return task_loss(adapted(params, support_x, support_y), query_x, query_y)

    return vmap(of_task)(*support, *query).mean()


@torch.compile
def adapted_predictions(params, x, y, points):
    return functional_call(net, adapted(params, x, y), (points,))


def sample_tasks(count, shots=10):
    amplitude = torch.rand(count, 1, 1) * 4.9 + 0.1
    phase = torch.rand(count, 1, 1) * math.pi
    x = torch.rand(count, 2 * shots, 1) * 10 - 5
    y = amplitude * torch.sin(x + phase)
    return (x[:, :shots], y[:, :shots]), (x[:, shots:], y[:, shots:])


params = dict(net.named_parameters())
optimizer = torch.optim.Adam(params.values(), lr=2e-3)
print(f"ready: {len(params)} tensors")
for step in range(9):
    support, query = sample_tasks(8)
    loss = meta_loss(params, support, query)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: {loss.item():.4g}")

(x, y), _ = sample_tasks(1)
with torch.no_grad():
    points = torch.linspace(-5, 5, 7).unsqueeze(1)
    predictions = adapted_predictions(params, x[0], y[0], points)
    print("adapted:", " ".join(f"{value:.3g}" for value in predictions[:, 0]))
