"""LoRA weights in a BERT are merged and unloaded; compiled before and after, it computes the same."""
# corpus: mode=inference needs=transformers,peft

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import BertConfig, BertModel


def grown(model: nn.Module) -> None:
    """Adapters as training would leave them: not zero."""
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.05)


@torch.no_grad()
def main() -> None:
    torch.manual_seed(63)
    config = BertConfig(
        vocab_size=100,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=32,
    )
    model = get_peft_model(
        BertModel(config), LoraConfig(r=4, use_rslora=True, target_modules=["query", "key", "dense"])
    )
    grown(model)
    model.eval()
    batches = [torch.randint(0, 100, (2, 12)) for _ in range(4)]
    adapted = torch.compile(model)
    print("adapters of rank 4, rank-stabilised")
    before = [adapted(input_ids=ids).last_hidden_state for ids in batches]
    for step, states in enumerate(before):
        print(f"adapted {step}: {states[0, 0, 0].item():.4g}, {states.abs().mean().item():.4g}")

    merged = model.merge_and_unload()
    plain = torch.compile(merged)
    for step, (ids, expected) in enumerate(zip(batches, before, strict=True)):
        states = plain(input_ids=ids).last_hidden_state
        same = torch.allclose(states, expected, atol=1e-4)
        print(f"merged {step}: {states[0, 0, 0].item():.4g}, the same: {same}")


main()
