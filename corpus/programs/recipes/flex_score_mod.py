"""flex_attention with score functions: ALiBi, a relative position bias and soft capping, in inference."""
# corpus: mode=inference steps=9

import torch
from torch.nn.attention.flex_attention import flex_attention

torch.manual_seed(0)
HEADS, LENGTH, WIDTH = 4, 128, 16
slopes = torch.exp2(-torch.arange(1, HEADS + 1) * 8.0 / HEADS)
bias = torch.randn(HEADS, 2 * LENGTH) * 0.1


def alibi(score, b, h, q, kv):
    return score - slopes[h] * (q - kv).abs()


def relative(score, b, h, q, kv):
    return score + bias[h, q - kv + LENGTH]


def softcap(score, b, h, q, kv):
    return 20.0 * torch.tanh(score / 20.0)


@torch.compile
def attend_alibi(q, k, v):
    return flex_attention(q, k, v, score_mod=alibi)


@torch.compile
def attend_relative(q, k, v):
    return flex_attention(q, k, v, score_mod=relative)


@torch.compile
def attend_softcap(q, k, v):
    return flex_attention(q, k, v, score_mod=softcap, enable_gqa=True)


q = torch.randn(2, HEADS, LENGTH, WIDTH)
k, v = torch.randn(2, 2, HEADS, LENGTH, WIDTH).unbind(0)
few_k, few_v = k[:, :2].contiguous(), v[:, :2].contiguous()
print("ready")

with torch.no_grad():
    for _ in range(3):
        out = attend_alibi(q, k, v)
        print(f"alibi {out.std().item():.4g}")
        q = out + q
        out = attend_relative(q, k, v)
        print(f"relative {out.std().item():.4g}")
        out = attend_softcap(q, few_k, few_v)
        print(f"softcap, grouped heads {out.std().item():.4g}")
