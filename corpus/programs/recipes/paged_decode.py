"""A vLLM-like decode step: paged key-value blocks, block tables, requests that join and leave the batch."""
# corpus: mode=inference steps=12

import torch
import torch.nn.functional as F
from torch import nn

BLOCK, BLOCKS, HEADS, DIM, VOCAB = 4, 32, 2, 16, 64
WIDTH = HEADS * DIM


class PagedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, k_cache, v_cache, slots, block_tables, lengths):
        n = x.shape[0]
        q, k, v = self.qkv(x).view(n, 3, HEADS, DIM).unbind(1)
        k_cache.view(-1, HEADS, DIM).index_copy_(0, slots, k)
        v_cache.view(-1, HEADS, DIM).index_copy_(0, slots, v)
        keys = k_cache[block_tables].flatten(1, 2).transpose(1, 2)
        values = v_cache[block_tables].flatten(1, 2).transpose(1, 2)
        visible = torch.arange(keys.shape[2]) < lengths[:, None]
        y = F.scaled_dot_product_attention(q.unsqueeze(2), keys, values, attn_mask=visible[:, None, None])
        return self.out(y.reshape(n, WIDTH))


class Model(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.attention = nn.ModuleList(PagedAttention() for _ in range(layers))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 64), nn.SiLU(), nn.Linear(64, WIDTH))
            for _ in range(layers)
        )
        self.out = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens, caches, slots, block_tables, lengths):
        x = self.embed(tokens)
        for (k_cache, v_cache), attention, mlp in zip(caches, self.attention, self.mlp):
            x = x + attention(x, k_cache, v_cache, slots, block_tables, lengths)
            x = x + mlp(x)
        return self.out(x)


class Request:
    def __init__(self, token, free):
        self.tokens, self.blocks, self.free = [token], [], free

    def slot(self):
        """Where the key of the last token goes; takes another block when the last one is full."""
        position = len(self.tokens) - 1
        if position % BLOCK == 0:
            self.blocks.append(self.free.pop())
        return self.blocks[-1] * BLOCK + position % BLOCK


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = Model().eval()
    compiled = torch.compile(model, dynamic=True)
    caches = [
        (torch.zeros(BLOCKS, BLOCK, HEADS, DIM), torch.zeros(BLOCKS, BLOCK, HEADS, DIM)) for _ in range(2)
    ]
    free = list(range(BLOCKS))
    running = [Request(token, free) for token in (3, 14, 15)]
    print("ready")
    for step in range(12):
        if step in (3, 6):
            running.append(Request(step, free))
        slots = torch.tensor([request.slot() for request in running])
        tables = torch.zeros(len(running), 4, dtype=torch.long)
        for row, request in enumerate(running):
            tables[row, : len(request.blocks)] = torch.tensor(request.blocks)
        lengths = torch.tensor([len(request.tokens) for request in running])
        tokens = torch.tensor([request.tokens[-1] for request in running])
        logits = compiled(tokens, caches, slots, tables, lengths)
        for request, token in zip(running, logits.argmax(-1).tolist()):
            request.tokens.append(token)
        print(f"step {step}: {[request.tokens[-1] for request in running]} {logits.max().item():.4g}")
        if step == 8:
            free.extend(running.pop(0).blocks)


if __name__ == "__main__":
    main()
