"""Mistral with a sliding window generates from left-padded prompts, with the default dynamic cache."""
# corpus: mode=inference needs=transformers

import torch
from transformers import MistralConfig, MistralForCausalLM, set_seed

PAD = 0


def left_padded(prompts: list[list[int]]) -> dict[str, torch.Tensor]:
    longest = max(map(len, prompts))
    rows = [[PAD] * (longest - len(p)) + p for p in prompts]
    ids = torch.tensor(rows)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


set_seed(4)
config = MistralConfig(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    sliding_window=16,
    initializer_range=0.1,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=PAD,
)
model = MistralForCausalLM(config).eval()
model.forward = torch.compile(model.forward, dynamic=True)
print("Mistral, sliding window of", config.sliding_window)

batches = [
    [[5, 6, 7], [8, 9, 10, 11, 12]],
    [[40, 41], [42, 43, 44, 45, 46, 47, 48]],
    [[100, 101, 102, 103], [104, 105, 106, 107]],
]
for number, prompts in enumerate(batches):
    inputs = left_padded(prompts)
    for greedy in (True, False):
        torch.manual_seed(number)
        settings = {"do_sample": False} if greedy else {"do_sample": True, "top_k": 20, "temperature": 0.7}
        out = model.generate(**inputs, max_new_tokens=6, min_new_tokens=6, **settings)
        fresh = out[:, inputs["input_ids"].shape[1] :]
        print(f"batch {number}, {'greedy' if greedy else 'sampled'}: {fresh.tolist()}")
