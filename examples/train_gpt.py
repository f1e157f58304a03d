"""Train a small GPT-2-style decoder on Shakespeare's sonnets, one character at a time."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TEXT = Path(__file__).parent / "data" / "sonnets.txt"


@dataclass
class Config:
    vocab_size: int
    context: int = 64
    layers: int = 2
    heads: int = 4
    width: int = 128
    dropout: float = 0.1
    batch: int = 16
    steps: int = 300
    learning_rate: float = 1e-3


class SelfAttention(nn.Module):
    future: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)
        future = torch.ones(config.context, config.context, dtype=torch.bool).triu(1)
        self.register_buffer("future", future)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(self.future, float("-inf"))
        weights = self.dropout(scores.softmax(-1))
        mixed = (weights @ v).transpose(1, 2).reshape(batch, time, width)
        return self.dropout(self.proj(mixed))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.width)
        self.attention = SelfAttention(config)
        self.norm_2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * config.width, config.width),
            nn.Dropout(config.dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocab_size, config.width)
        self.position_embedding = nn.Embedding(config.context, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.head.weight = self.token_embedding.weight
        self.apply(self._init_weights)

    @staticmethod
    def _init_weights(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load_text() -> tuple[Tensor, int]:
    """The text as character numbers, and how many different characters it has."""
    text = TEXT.read_text()
    numbers = {character: number for number, character in enumerate(sorted(set(text)))}
    return torch.tensor([numbers[character] for character in text]), len(numbers)


def sample_batch(data: Tensor, config: Config) -> tuple[Tensor, Tensor]:
    """Random windows of the text, and the same windows one character later."""
    starts = torch.randint(len(data) - config.context, (config.batch,)).tolist()
    windows = torch.stack([data[start : start + config.context + 1] for start in starts])
    return windows[:, :-1], windows[:, 1:]


def main() -> None:
    torch.manual_seed(0)
    data, vocab_size = load_text()
    config = Config(vocab_size)
    model = GPT(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(data):,} characters, {vocab_size} different; {parameters:,} parameters")

    # fallback_random draws the dropout masks as eager does, so the losses are eager's.
    compiled = torch.compile(model, options={"fallback_random": True})
    total = 0.0
    for step in range(1, config.steps + 1):
        loss = compiled(*sample_batch(data, config))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 50 == 0:
            print(f"step {step:3}: mean loss {total / 50:.2f}")
            total = 0.0


if __name__ == "__main__":
    main()
