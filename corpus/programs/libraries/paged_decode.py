"""Decode several requests with continuous batching over a paged KV cache, as vLLM's engine does."""
# corpus: mode=inference

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

BLOCK, BLOCKS, LAYERS, HEADS, KV_HEADS, HEAD, VOCABULARY = 4, 24, 2, 4, 2, 16, 96


@dataclass
class Batch:
    """What one decode step needs about its requests."""

    tokens: torch.Tensor  # [request]
    positions: torch.Tensor  # [request]
    slots: torch.Tensor  # [request]: where the new keys and values go
    block_tables: torch.Tensor  # [request, block]
    lengths: torch.Tensor  # [request]


class PagedAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, (HEADS + 2 * KV_HEADS) * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, width, bias=False)
        self.register_buffer("inverse", 100.0 ** (-torch.arange(0, HEAD, 2) / HEAD), persistent=False)

    def rotate(self, x, positions):
        angles = positions[:, None, None] * self.inverse
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1
        )

    def forward(self, x, cache, positions, slots, block_tables, lengths):
        q, k, v = self.qkv(x).split([HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD], dim=-1)
        q = self.rotate(q.view(-1, HEADS, HEAD), positions)
        k = self.rotate(k.view(-1, KV_HEADS, HEAD), positions)
        keys, values = cache[0].view(-1, KV_HEADS, HEAD), cache[1].view(-1, KV_HEADS, HEAD)
        keys.index_copy_(0, slots, k)
        values.index_copy_(0, slots, v.view(-1, KV_HEADS, HEAD))
        gathered_k, gathered_v = (
            part[block_tables].flatten(1, 2).transpose(1, 2) for part in (cache[0], cache[1])
        )
        mask = torch.arange(gathered_k.shape[2]) < lengths[:, None]
        attended = F.scaled_dot_product_attention(
            q.unsqueeze(2), gathered_k, gathered_v, attn_mask=mask[:, None, None], enable_gqa=True
        )
        return self.out(attended.flatten(1))


class Model(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.attentions = nn.ModuleList(PagedAttention(width) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2 * LAYERS))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 96), nn.SiLU(), nn.Linear(96, width)) for _ in range(LAYERS)
        )

    def forward(self, tokens, positions, slots, block_tables, lengths, caches):
        x = self.embedding(tokens)
        for index, attention in enumerate(self.attentions):
            normed = self.norms[2 * index](x)
            x = x + attention(normed, caches[index], positions, slots, block_tables, lengths)
            x = x + self.mlps[index](self.norms[2 * index + 1](x))
        return F.linear(x, self.embedding.weight)


class Scheduler:
    """Give each request blocks of the cache as it grows, and take them back when it ends."""

    def __init__(self):
        self.free = list(range(BLOCKS))
        self.running: dict[int, dict] = {}

    def admit(self, request, token, limit):
        self.running[request] = {"tokens": [token], "blocks": [], "limit": limit}

    def batch(self):
        rows = list(self.running.values())
        for row in rows:
            if (len(row["tokens"]) - 1) % BLOCK == 0:
                row["blocks"].append(self.free.pop(0))
        last = torch.tensor([len(row["tokens"]) - 1 for row in rows])
        slots = [row["blocks"][-1] * BLOCK + (len(row["tokens"]) - 1) % BLOCK for row in rows]
        tables = torch.zeros(len(rows), 4, dtype=torch.long)
        for index, row in enumerate(rows):
            tables[index, : len(row["blocks"])] = torch.tensor(row["blocks"])
        return Batch(
            torch.tensor([row["tokens"][-1] for row in rows]), last, torch.tensor(slots), tables, last + 1
        )

    def commit(self, sampled):
        for (request, row), token in zip(list(self.running.items()), sampled.tolist(), strict=True):
            row["tokens"].append(token)
            if len(row["tokens"]) > row["limit"]:
                self.free += self.running.pop(request)["blocks"]


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = Model().eval()
    caches = [torch.zeros(2, BLOCKS, BLOCK, KV_HEADS, HEAD) for _ in range(LAYERS)]
    step_model = torch.compile(model, dynamic=True)
    scheduler = Scheduler()
    print(f"{BLOCKS} blocks of {BLOCK} tokens")
    for step in range(14):
        if step in (0, 1, 4, 7):
            scheduler.admit(step, token=3 + step, limit=6 + step)
        batch = scheduler.batch()
        logits = step_model(*vars(batch).values(), caches)
        scheduler.commit(logits.argmax(dim=-1))
        spread, free = logits.std().item(), len(scheduler.free)
        print(f"step {step}: {len(batch.tokens)} requests, logits {spread:.4g}, free {free}")


if __name__ == "__main__":
    main()
