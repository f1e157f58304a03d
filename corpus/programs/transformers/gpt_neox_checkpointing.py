"""GPT-NeoX whose compiled layers run under activation checkpointing, as for models that do not fit."""
# corpus: mode=training needs=transformers

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM


def main() -> None:
    torch.manual_seed(13)
    config = GPTNeoXConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        rotary_pct=0.25,
        use_parallel_residual=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cache=False,
    )
    model = GPTNeoXForCausalLM(config)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for layer in model.gpt_neox.layers:
        layer.compile(fullgraph=True)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    print("checkpointing:", model.is_gradient_checkpointing)

    for step in range(8):
        tokens = torch.randint(0, 64, (2, 32))
        mask = torch.ones_like(tokens)
        mask[0, 24:] = 0
        labels = tokens.masked_fill(mask == 0, -100)
        loss = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        loss.backward()
        gradient = model.gpt_neox.layers[0].mlp.dense_h_to_4h.weight.grad.norm().item()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}, first layer's gradient {gradient:.4g}")


if __name__ == "__main__":
    main()
