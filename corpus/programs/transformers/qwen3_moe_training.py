"""Qwen3 MoE with dense and sparse layers, compiled layer by layer, warmed up to a constant rate."""
# corpus: mode=training needs=transformers

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, get_constant_schedule_with_warmup

torch.manual_seed(32)
config = Qwen3MoeConfig(
    vocab_size=100,
    hidden_size=48,
    intermediate_size=96,
    moe_intermediate_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=12,
    num_experts=4,
    num_experts_per_tok=2,
    mlp_only_layers=[0],
    decoder_sparse_step=1,
    attention_dropout=0.0,
    use_cache=False,
)
model = Qwen3MoeForCausalLM(config).train()
for index, layer in enumerate(model.model.layers):
    model.model.layers[index] = torch.compile(layer)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = get_constant_schedule_with_warmup(optimizer, num_warmup_steps=3)
print("dense layers:", config.mlp_only_layers, "of", config.num_hidden_layers)

tokens = torch.randint(0, 100, (3, 14))
for step in range(8):
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(f"step {step}: rate {schedule.get_last_lr()[0]:.3g}, loss {loss.item():.4g}")
