"""Gemma 2 with capped attention scores and logits, alternating windows, and the eager attention kernel."""
# corpus: mode=training needs=transformers

import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

torch.manual_seed(8)
config = Gemma2Config(
    vocab_size=200,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    query_pre_attn_scalar=16,
    sliding_window=8,
    attn_logit_softcapping=20.0,
    final_logit_softcapping=15.0,
    attention_dropout=0.0,
)
model = Gemma2ForCausalLM._from_config(config, attn_implementation="eager")
model.train()
model.compile()

optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=10)
print("layer types:", ", ".join(config.layer_types))

tokens = torch.randint(0, 200, (3, 20))
for step in range(10):
    out = model(input_ids=tokens, labels=tokens, output_hidden_states=True, use_cache=False)
    flatness = sum(state.pow(2).mean() for state in out.hidden_states) / len(out.hidden_states)
    (out.loss + 1e-3 * flatness).backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {out.loss.item():.4g}, hidden {flatness.item():.4g}")
