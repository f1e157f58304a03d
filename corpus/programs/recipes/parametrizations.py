"""Weight norm, spectral norm, orthogonal and user-written parametrizations, compiled, then removed."""
# corpus: mode=training steps=10

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).transpose(-1, -2)

    def right_inverse(self, weight):
        return weight.triu()


class Critic(nn.Module):
    def __init__(self, inputs=12, width=24):
        super().__init__()
        self.first = weight_norm(nn.Linear(inputs, width))
        self.second = spectral_norm(nn.Linear(width, width), n_power_iterations=2)
        self.third = orthogonal(nn.Linear(width, width), orthogonal_map="cayley")
        self.fourth = nn.Linear(width, width)
        parametrize.register_parametrization(self.fourth, "weight", Symmetric())
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        h = nn.functional.leaky_relu(self.first(x), 0.2)
        h = nn.functional.leaky_relu(self.second(h), 0.2)
        return self.head(self.fourth(self.third(h).tanh()).tanh()).squeeze(1)


def remove_parametrizations(model):
    """Make the computed weights ordinary parameters, as for deployment."""
    for layer in (model.first, model.second, model.third, model.fourth):
        parametrize.remove_parametrizations(layer, "weight")


def main():
    torch.manual_seed(0)
    model = Critic()
    step_model = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    x = torch.randn(64, 12)
    y = (x[:, :6] * x[:, 6:]).sum(1)
    print(f"ready: {len(list(model.parameters()))} parameters")
    for step in range(9):
        loss = nn.functional.mse_loss(step_model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item():.4g}")
    model.eval()
    with torch.no_grad():
        before = step_model(x).square().mean()
        remove_parametrizations(model)
        after = torch.compile(model)(x).square().mean()
    print(f"with parametrizations: {before:.4g}, as parameters: {after:.4g}")


if __name__ == "__main__":
    main()
