"""One training step of a Llama-like decoder with 7 billion parameters, in bfloat16, on a GPU."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Config:
    layers: int = 32
    width: int = 4096
    hidden: int = 11008
    heads: int = 32
    kv_heads: int = 32
    vocab_size: int = 32000
    batch: int = 1
    context: int = 2048


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return (x * scale).to(x.dtype) * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.float().chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        size = config.width // config.heads
        self.q = nn.Linear(config.width, config.heads * size, bias=False)
        self.k = nn.Linear(config.width, config.kv_heads * size, bias=False)
        self.v = nn.Linear(config.width, config.kv_heads * size, bias=False)
        self.out = nn.Linear(config.heads * size, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, time, width = x.shape
        q = rotate(self.q(x).view(batch, time, self.heads, -1).transpose(1, 2), cos, sin)
        k = rotate(self.k(x).view(batch, time, self.kv_heads, -1).transpose(1, 2), cos, sin)
        v = self.v(x).view(batch, time, self.kv_heads, -1).transpose(1, 2)
        if self.kv_heads != self.heads:
            k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
            v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))


class MLP(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm_1 = RMSNorm(config.width)
        self.attention = Attention(config)
        self.norm_2 = RMSNorm(config.width)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x), cos, sin)
        return x + self.mlp(self.norm_2(x))


class Decoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.half = config.width // config.heads // 2
        self.embed = nn.Embedding(config.vocab_size, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        place = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
        speed = 10000.0 ** (-torch.arange(self.half, device=tokens.device) / self.half)
        angles = torch.outer(place, speed)
        cos, sin = angles.cos(), angles.sin()
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=Config.layers)
    parser.add_argument("--kv-heads", type=int, default=Config.kv_heads)
    given = parser.parse_args()
    config = Config(layers=given.layers, kv_heads=given.kv_heads)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    torch.set_default_dtype(torch.bfloat16)
    model = Decoder(config).to(device)
    torch.set_default_dtype(torch.float32)
    step = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{parameters / 1e9:.2f} billion parameters on {next(model.parameters()).device}")
    for _ in range(10):
        tokens = torch.randint(0, config.vocab_size, (config.batch, config.context + 1), device=device)
        loss = step(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
