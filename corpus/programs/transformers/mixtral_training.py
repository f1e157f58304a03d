"""Mixtral trained with the load-balancing loss of its router, and the tokens of each expert counted."""
# corpus: mode=training needs=transformers

import torch
from transformers import MixtralConfig, MixtralForCausalLM


def main() -> None:
    torch.manual_seed(30)
    config = MixtralConfig(
        vocab_size=128,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        output_router_logits=True,
        router_aux_loss_coef=0.02,
        sliding_window=None,
        use_cache=False,
    )
    model = MixtralForCausalLM(config)
    model.train()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    print(f"{config.num_local_experts} experts, {config.num_experts_per_tok} per token")
    for step in range(8):
        tokens = torch.randint(0, 60, (2, 16))
        out = compiled(input_ids=tokens, labels=tokens)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        chosen = out.router_logits[0].detach().topk(2, dim=-1).indices
        counts = torch.bincount(chosen.flatten(), minlength=4).tolist()
        print(f"step {step}: loss {out.loss.item():.4g}, balance {out.aux_loss.item():.4g}, tokens {counts}")


if __name__ == "__main__":
    main()
