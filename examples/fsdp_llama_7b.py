"""Train a Llama-like 7B model with FSDP2: `torchrun --nproc-per-node 8 examples/fsdp_llama_7b.py`.

`aotlens fit --ranks 8 examples/fsdp_llama_7b.py` predicts each rank's memory and collectives on one machine
without GPUs.  The options make the model smaller.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

STEPS = 4


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.wq = nn.Linear(width, width, bias=False)
        self.wk = nn.Linear(width, width, bias=False)
        self.wv = nn.Linear(width, width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.split(layer(x)) for layer in (self.wq, self.wk, self.wv))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).flatten(2))

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(width, hidden, bias=False)
        self.w2 = nn.Linear(hidden, width, bias=False)
        self.w3 = nn.Linear(width, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = nn.RMSNorm(width)
        self.feed_forward = FeedForward(width, hidden)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.embed = nn.Embedding(options.vocabulary, options.width)
        self.blocks = nn.ModuleList(
            Block(options.width, options.heads, options.hidden) for _ in range(options.layers)
        )
        self.norm = nn.RMSNorm(options.width)
        self.head = nn.Linear(options.width, options.vocabulary, bias=False)
        angles = torch.outer(
            torch.arange(options.sequence), 1e4 ** -torch.linspace(0, 1, options.width // options.heads // 2)
        )
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name, default in {
        "layers": 32,
        "width": 4096,
        "heads": 32,
        "hidden": 11008,
        "vocabulary": 32000,
        "sequence": 4096,
        "batch": 1,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def main() -> None:
    options = parse()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Llama(options)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device=device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _ in range(STEPS):
        tokens = torch.randint(options.vocabulary, (options.batch, options.sequence + 1), device=device)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
