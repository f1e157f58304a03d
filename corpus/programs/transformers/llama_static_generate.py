"""Llama generates with a static cache and a compiled forward, as the documentation recommends."""
# corpus: mode=inference needs=transformers

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def build() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def main() -> None:
    torch.manual_seed(2)
    model = build()
    model.generation_config.cache_implementation = "static"
    model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
    print("static cache, forward compiled")
    for step in range(8):
        prompt = torch.randint(3, 300, (2, 12))
        tokens = model.generate(prompt, max_new_tokens=10, do_sample=False)
        new = tokens[:, prompt.shape[1] :]
        print(f"prompt {step}: {new.shape[1]} new tokens {new[0].tolist()}, sum {new.sum().item()}")


if __name__ == "__main__":
    main()
