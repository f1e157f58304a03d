"""ModernBERT with local and global attention labels tokens; rare labels weigh more in the loss."""
# corpus: mode=training needs=transformers

import torch
import torch.nn.functional as F
from transformers import ModernBertConfig, ModernBertForTokenClassification


def main() -> None:
    torch.manual_seed(24)
    config = ModernBertConfig(
        vocab_size=200,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        global_attn_every_n_layers=3,
        local_attention=16,
        max_position_embeddings=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
        num_labels=4,
    )
    model = ModernBertForTokenClassification._from_config(config, attn_implementation="sdpa")
    model.train()
    model.compile()
    weights = torch.tensor([0.2, 1.0, 1.0, 2.0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=4)
    print("labels:", config.num_labels, "layers:", config.num_hidden_layers)
    for step in range(9):
        ids = torch.randint(3, 200, (3, 40))
        mask = torch.ones_like(ids)
        mask[1, 30:] = mask[2, 22:] = 0
        labels = (ids // 50).masked_fill(mask == 0, -100)
        logits = model(input_ids=ids, attention_mask=mask).logits
        loss = F.cross_entropy(logits.transpose(1, 2), labels, weight=weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
