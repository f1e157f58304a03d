"""An ensemble of networks trained at once with stack_module_state, functional_call and vmap, compiled."""
# corpus: mode=training steps=10

import copy

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap


class Net(nn.Module):
    def __init__(self, inputs=6, hidden=24, outputs=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.ELU(), nn.Linear(hidden, outputs))

    def forward(self, x):
        return self.layers(x)


torch.manual_seed(0)
members = [Net() for _ in range(5)]
params, buffers = stack_module_state(members)
base = copy.deepcopy(members[0]).to("meta")


def member_loss(params, buffers, x, y):
    logits = functional_call(base, (params, buffers), (x,))
    return nn.functional.cross_entropy(logits, y)


@torch.compile
def ensemble_loss(params, buffers, x, y):
    return vmap(member_loss, in_dims=(0, 0, None, None))(params, buffers, x, y)


optimizer = torch.optim.Adam(params.values(), lr=1e-2)
x = torch.randn(96, 6)
y = x[:, :3].argmax(1)
print(f"ready: {len(members)} members")

for step in range(10):
    losses = ensemble_loss(params, buffers, x, y)
    optimizer.zero_grad()
    losses.sum().backward()
    optimizer.step()
    print(f"step {step}: " + " ".join(f"{loss:.4g}" for loss in losses.tolist()))
