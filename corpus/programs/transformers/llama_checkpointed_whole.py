"""A whole Llama compiled after gradient_checkpointing_enable, so that Dynamo sees the checkpoints inside."""
# corpus: mode=training needs=transformers

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.optimization import Adafactor

torch.manual_seed(14)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        attention_bias=True,
        tie_word_embeddings=True,
        use_cache=False,
    )
)
model.gradient_checkpointing_enable()
model.train()
step_model = torch.compile(model)
optimizer = Adafactor(
    model.parameters(), lr=1e-2, relative_step=False, scale_parameter=False, warmup_init=False
)
print("tied embeddings:", model.lm_head.weight is model.model.embed_tokens.weight)

tokens = torch.randint(0, 128, (4, 20))
for step in range(8):
    loss = step_model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4g}")
