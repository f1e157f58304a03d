"""A Fourier neural operator learns to integrate signals, with complex weights and a compiled STFT loss."""
# corpus: mode=training steps=12

import torch
import torch.nn.functional as F
from torch import nn


class SpectralConv(nn.Module):
    def __init__(self, channels, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(channels, channels, modes, dtype=torch.cfloat) / channels)

    def forward(self, x):
        spectrum = torch.fft.rfft(x, norm="ortho")
        mixed = torch.zeros_like(spectrum)
        mixed[..., : self.modes] = torch.einsum("bik,iok->bok", spectrum[..., : self.modes], self.weight)
        return torch.fft.irfft(mixed, n=x.shape[-1], norm="ortho")


class FourierOperator(nn.Module):
    def __init__(self, channels=16, modes=12, depth=3):
        super().__init__()
        self.lift, self.project = nn.Conv1d(2, channels, 1), nn.Conv1d(channels, 1, 1)
        self.spectral = nn.ModuleList(SpectralConv(channels, modes) for _ in range(depth))
        self.local = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(depth))

    def forward(self, signal):
        grid = torch.linspace(0, 1, signal.shape[-1], device=signal.device).expand_as(signal)
        x = self.lift(torch.stack([signal, grid], dim=1))
        for spectral, local in zip(self.spectral, self.local):
            x = F.gelu(spectral(x) + local(x))
        return self.project(x).squeeze(1)


def stft_loss(prediction, target, window):
    def magnitude(x):
        parts = torch.stft(x, 32, hop_length=8, window=window, return_complex=True)
        return parts.abs().clamp(min=1e-3)

    predicted, wanted = magnitude(prediction), magnitude(target)
    convergence = torch.linalg.norm(wanted - predicted) / torch.linalg.norm(wanted)
    return convergence + F.l1_loss(predicted.log(), wanted.log())


def main():
    torch.manual_seed(0)
    model = torch.compile(FourierOperator())
    spectral_loss = torch.compile(stft_loss)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    window = torch.hann_window(32)
    signals = torch.randn(16, 128)
    targets = signals.cumsum(-1) / 8
    print(f"ready: {sum(p.numel() for p in model.parameters())} parameters")
    for step in range(12):
        prediction = model(signals)
        loss = F.mse_loss(prediction, targets) + 0.1 * spectral_loss(prediction, targets, window)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item():.4g}")


if __name__ == "__main__":
    main()
