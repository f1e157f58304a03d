"""Qwen3 scores documents with flex attention, whose block mask is made of the padding."""
# corpus: mode=inference needs=transformers

import torch
import torch.nn.functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM

torch.manual_seed(6)
config = Qwen3Config(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    bos_token_id=None,
    eos_token_id=None,
)
config._attn_implementation = "flex_attention"
model = Qwen3ForCausalLM(config).eval()
compiled = torch.compile(model)
print("attention:", model.config._attn_implementation)

length = 64
for step in range(8):
    tokens = torch.randint(0, 256, (2, length))
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, length - 4 * step :] = 0
    with torch.inference_mode():
        logits = compiled(input_ids=tokens, attention_mask=mask, use_cache=False).logits
    scores = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    kept = mask[:, 1:].flatten().bool()
    print(f"batch {step}: perplexity {scores[kept].mean().exp().item():.4g} over {int(kept.sum())} tokens")
