"""Llama in bfloat16 whose layers are compiled one by one, gradients accumulated over micro-batches."""
# corpus: mode=training needs=transformers tolerance=2e-2

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
config = LlamaConfig(
    vocab_size=320,
    hidden_size=64,
    intermediate_size=176,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
)
model = LlamaForCausalLM(config).to(torch.bfloat16).train()

# The same code serves every layer, so that it is compiled once.
for layer in model.model.layers:
    layer.compile()

optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
accumulate = 2
print(f"{len(model.model.layers)} layers compiled, {accumulate} micro-batches per step")

generator = torch.Generator().manual_seed(7)
for step in range(8):
    total = 0.0
    for _ in range(accumulate):
        batch = torch.randint(0, 40, (2, 24), generator=generator)
        output = model(input_ids=batch, labels=batch, use_cache=False)
        (output.loss / accumulate).backward()
        total += output.loss.item() / accumulate
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {total:.4g}")
