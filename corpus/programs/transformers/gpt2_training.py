"""GPT-2 trained on packed sequences: the whole model compiled, AdamW with decay groups, cosine schedule."""
# corpus: mode=training needs=transformers

import torch
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup

STEPS, BATCH, LENGTH, VOCABULARY = 10, 4, 32, 256


def decay_groups(model: torch.nn.Module, decay: float) -> list[dict[str, object]]:
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]


def main() -> None:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=64,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    model.train()
    optimizer = torch.optim.AdamW(decay_groups(model, 0.1), lr=3e-3, betas=(0.9, 0.95))
    scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=2, num_training_steps=STEPS)
    compiled = torch.compile(model)
    print(f"GPT-2 with {model.num_parameters()} parameters")

    stream = torch.randint(0, VOCABULARY // 8, (STEPS * BATCH * LENGTH,))
    for step, tokens in enumerate(stream.view(STEPS, BATCH, LENGTH)):
        loss = compiled(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {loss.item():.4g}, gradient norm {norm.item():.4g}")


if __name__ == "__main__":
    main()
