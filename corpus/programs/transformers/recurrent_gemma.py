"""RecurrentGemma: gated linear recurrences between layers of local attention, trained with RMSprop."""
# corpus: mode=training needs=transformers

import torch
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

torch.manual_seed(49)
config = RecurrentGemmaConfig(
    vocab_size=96,
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=1,
    lru_width=48,
    attention_window_size=8,
    conv1d_width=4,
    block_types=("recurrent", "recurrent", "attention"),
    logits_soft_cap=20.0,
    attention_dropout=0.0,
    use_cache=False,
)
model = RecurrentGemmaForCausalLM(config).train()
compiled = torch.compile(model)
optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-4, momentum=0.9)
print("blocks:", ", ".join(config.block_types))
tokens = torch.randint(0, 96, (2, 12))
for step in range(8):
    loss = compiled(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4g}")
