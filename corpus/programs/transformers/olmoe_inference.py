"""OLMoE with many small experts reads prompts; experts run grouped, each layer's load is reported."""
# corpus: mode=inference needs=transformers

import torch
from transformers import OlmoeConfig, OlmoeForCausalLM

torch.manual_seed(31)
config = OlmoeConfig(
    vocab_size=200,
    hidden_size=64,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    num_experts=8,
    num_experts_per_tok=2,
    norm_topk_prob=True,
    clip_qkv=8.0,
    pad_token_id=0,
    eos_token_id=None,
)
model = OlmoeForCausalLM(config).eval()
for layer in model.model.layers:
    layer.mlp = torch.compile(layer.mlp)
print("expert blocks compiled:", len(model.model.layers))

with torch.no_grad():
    for step in range(8):
        tokens = torch.randint(1, 200, (2, 10 + step))
        out = model(input_ids=tokens, use_cache=False, output_router_logits=True)
        load = torch.stack([r.softmax(-1).mean(0).max() for r in out.router_logits])
        print(f"prompt {step}: logits {out.logits.abs().mean().item():.4g}, busiest {load.max().item():.4g}")
