"""Control flow that stays in the graph: a gated linear recurrence with the scan operator, chunk by chunk."""
# corpus: mode=inference steps=10

import torch
from torch import nn
from torch._higher_order_ops.scan import scan


class LinearRecurrence(nn.Module):
    """h[t] = decay * h[t - 1] + (1 - decay) * x[t], with a decay for each channel."""

    def __init__(self, width):
        super().__init__()
        self.log_decay = nn.Parameter(torch.linspace(-3, 3, width))
        self.inputs = nn.Linear(width, width)

    def forward(self, x, state):
        def combine(state, inputs):
            item, decay = inputs
            state = decay * state + (1 - decay) * item
            return state, state.clone()

        items = self.inputs(x).transpose(0, 1)
        decay = torch.sigmoid(self.log_decay).expand(len(items), -1).contiguous()
        state, states = scan(combine, state, (items, decay))
        return states.transpose(0, 1), state


class Model(nn.Module):
    def __init__(self, width=16, layers=2):
        super().__init__()
        self.layers = nn.ModuleList(LinearRecurrence(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 1)

    def forward(self, x, states):
        new_states = []
        for layer, state in zip(self.layers, states):
            mixed, state = layer(self.norm(x), state)
            x = x + torch.tanh(mixed)
            new_states.append(state)
        return self.out(x).squeeze(-1), new_states


def main():
    torch.manual_seed(0)
    model = Model().eval()
    compiled = torch.compile(model)
    signal = torch.randn(4, 80, 16)
    states = [torch.zeros(4, 16) for _ in model.layers]
    print("ready")
    with torch.no_grad():
        for chunk in signal.split(8, dim=1):
            outputs, states = compiled(chunk, states)
            norms = " ".join(f"{state.norm().item():.4g}" for state in states)
            print(f"mean {outputs.abs().mean().item():.4g} states {norms}")


if __name__ == "__main__":
    main()
