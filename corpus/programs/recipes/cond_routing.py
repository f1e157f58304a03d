"""torch.cond in a compiled model: a data-dependent choice between two branches without a graph break."""
# corpus: mode=inference steps=10

import torch
from torch import nn


class AdaptiveFilter(nn.Module):
    """Noisy signals take the expensive branch, clean ones the cheap branch."""

    def __init__(self, channels=4, taps=9):
        super().__init__()
        self.smooth = nn.Conv1d(channels, channels, taps, padding=taps // 2, groups=channels)
        self.refine = nn.Conv1d(channels, channels, 3, padding=1)
        self.gain = nn.Parameter(torch.ones(channels, 1))

    def forward(self, signal):
        roughness = signal.diff(dim=-1).square().mean()

        def expensive(x):
            return self.refine(torch.relu(self.smooth(x))) + x

        def cheap(x):
            return x * self.gain

        return torch.cond(roughness > 1.0, expensive, cheap, (signal,)), roughness


def newton_square_root(value, steps=20):
    def unfinished(guess, step):
        return ((guess * guess - value).abs().max() > 1e-5) & (step < steps)

    def improve(guess, step):
        return 0.5 * (guess + value / guess), step + 1

    from torch._higher_order_ops import while_loop

    return while_loop(unfinished, improve, (value.clone(), torch.tensor(0)))


def main():
    torch.manual_seed(0)
    model = AdaptiveFilter().eval()
    filtered = torch.compile(model, fullgraph=True)
    root = torch.compile(newton_square_root, fullgraph=True)
    print("ready")
    with torch.no_grad():
        for step in range(10):
            time = torch.linspace(0, 6, 64)
            signal = torch.sin(time * torch.arange(1, 5)[:, None]).unsqueeze(0)
            signal = signal + (step % 3) * 0.8 * torch.randn(1, 4, 64)
            result, roughness = filtered(signal)
            value, iterations = root(result.abs().mean(-1) + 1)
            print(
                f"roughness {roughness:.3g} result {result.std():.4g} root {value.sum():.4g} in {iterations}"
            )


if __name__ == "__main__":
    main()
