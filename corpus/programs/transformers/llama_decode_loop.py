"""A hand-written greedy decoding loop over Llama's static cache, with the single-token step compiled."""
# corpus: mode=inference needs=transformers

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

BATCH, PROMPT, NEW = 2, 9, 12


def decode_one(
    model: LlamaForCausalLM, token: Tensor, position: Tensor, cache: StaticCache
) -> tuple[Tensor, Tensor]:
    logits = model(token, position_ids=position[None], past_key_values=cache, use_cache=True).logits[:, -1]
    return logits.argmax(-1, keepdim=True), logits.float().logsumexp(-1)


@torch.no_grad()
def main() -> None:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=200,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    cache = StaticCache(config=config, max_cache_len=PROMPT + NEW)
    prompt = torch.randint(0, 200, (BATCH, PROMPT))

    prefill = model(prompt, past_key_values=cache, use_cache=True)
    token = prefill.logits[:, -1].argmax(-1, keepdim=True)
    step = torch.compile(decode_one)
    print(f"prompt read, first tokens {token.flatten().tolist()}")

    position = torch.tensor([PROMPT])
    for count in range(NEW):
        token, evidence = step(model, token.clone(), position, cache)
        position = position + 1
        print(f"token {count}: {token.flatten().tolist()}, evidence {evidence.sum().item():.4g}")


main()
