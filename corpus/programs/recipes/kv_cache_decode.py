"""Decoding with a static key-value cache as in gpt-fast: prefill once, then one compiled step per token."""
# corpus: mode=inference steps=12

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class KVCache(nn.Module):
    def __init__(self, batch, length, heads, head_dim):
        super().__init__()
        self.register_buffer("k", torch.zeros(batch, heads, length, head_dim))
        self.register_buffer("v", torch.zeros(batch, heads, length, head_dim))

    def update(self, position, k, v):
        self.k[:, :, position] = k
        self.v[:, :, position] = v
        return self.k, self.v


class Layer(nn.Module):
    def __init__(self, width, heads, max_length):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.wqkv, self.wo = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.w1, self.w2 = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)
        self.cache = KVCache(1, max_length, heads, width // heads)

    def forward(self, x, position, mask):
        b, t, w = x.shape
        q, k, v = self.wqkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        k, v = self.cache.update(position, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.wo(y.transpose(1, 2).reshape(b, t, w))
        return x + self.w2(F.silu(self.w1(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, vocab=96, width=64, heads=4, layers=2, max_length=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Layer(width, heads, max_length) for _ in range(layers))
        self.norm, self.out = nn.RMSNorm(width), nn.Linear(width, vocab, bias=False)
        self.register_buffer("causal", torch.tril(torch.ones(max_length, max_length, dtype=torch.bool)))

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        mask = self.causal[None, None, position]
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, position, mask)
        return self.out(self.norm(x))


def next_token(logits):
    return logits[:, -1].argmax(-1, keepdim=True)


def decode_one_token(model, token, position):
    return next_token(model(token, position))


def prefill(model, tokens, position):
    return next_token(model(tokens, position))


def main():
    torch.manual_seed(0)
    model = Decoder().eval()
    decode = torch.compile(decode_one_token, mode="reduce-overhead", fullgraph=True)
    prompt_step = torch.compile(prefill, fullgraph=True, dynamic=True)
    prompt = torch.randint(0, 96, (1, 9))
    print("ready")
    with torch.no_grad():
        token = prompt_step(model, prompt, torch.arange(9))
        print(f"prefill -> {token.item()}")
        position = torch.tensor([9])
        for _ in range(11):
            token = decode(model, token.clone(), position)
            position += 1
            filled = model.layers[0].cache.k.abs().sum()
            print(f"position {position.item()} token {token.item()} cache {filled.item():.4g}")


if __name__ == "__main__":
    main()
