"""One Llama with its three ways to attend on CPU, switched while it runs: eager, SDPA, flex attention."""
# corpus: mode=inference needs=transformers

import torch
from transformers import LlamaConfig, LlamaModel

torch.manual_seed(53)
config = LlamaConfig(
    vocab_size=100,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
model = LlamaModel(config).eval()
compiled = torch.compile(model)
print("one model, three ways to attend")

tokens = torch.randint(0, 100, (2, 128))
mask = torch.ones_like(tokens)
mask[1, :40] = 0
kept = mask.bool().unsqueeze(-1)
for round_number in range(3):
    states = {}
    for name in ("eager", "sdpa", "flex_attention"):
        model.set_attn_implementation(name)
        with torch.no_grad():
            out = compiled(input_ids=tokens, attention_mask=mask, use_cache=False)
        states[name] = out.last_hidden_state * kept
        difference = (states[name] - states["eager"]).abs().max().item()
        size = states[name].abs().mean().item()
        print(f"round {round_number}, {name}: mean {size:.4g}, as eager: {difference < 1e-3}")
    tokens = tokens.roll(1, -1)
