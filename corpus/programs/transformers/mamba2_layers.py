"""Mamba-2 with its chunked scan, each block compiled, then decoding with the recurrent cache."""
# corpus: mode=inference needs=transformers

import torch
from transformers import Mamba2Config, Mamba2ForCausalLM

torch.manual_seed(48)
config = Mamba2Config(
    vocab_size=64,
    hidden_size=32,
    state_size=16,
    num_hidden_layers=2,
    num_heads=4,
    head_dim=16,
    n_groups=2,
    chunk_size=8,
    conv_kernel=4,
    expand=2,
    pad_token_id=0,
    bos_token_id=0,
    eos_token_id=1,
)
model = Mamba2ForCausalLM(config).eval()
for block in model.backbone.layers:
    block.compile(dynamic=False)
print("Mamba-2 in chunks of", config.chunk_size)

with torch.no_grad():
    for length in (16, 11, 16, 11):
        tokens = torch.randint(2, 64, (2, length))
        logits = model(input_ids=tokens, use_cache=False).logits
        print(f"length {length}: logits {logits.std().item():.4g}, sum {logits.double().sum().item():.4g}")
    for prompt in range(4):
        tokens = torch.randint(2, 64, (1, 6))
        out = model.generate(tokens, max_new_tokens=5, min_new_tokens=5, do_sample=False)
        print(f"prompt {prompt}: {out[0, 6:].tolist()}")
