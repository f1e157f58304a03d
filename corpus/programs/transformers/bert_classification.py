"""BERT fine-tuned as a sequence classifier under autocast to bfloat16, trained and evaluated in turn."""
# corpus: mode=training needs=transformers tolerance=2e-2

import torch
from transformers import BertConfig, BertForSequenceClassification


def batch(draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Sentences whose class is the parity of their first word; lengths differ, padding is masked."""
    ids = torch.randint(5, 100, (8, 16), generator=draw)
    lengths = torch.randint(6, 17, (8,), generator=draw)
    mask = (torch.arange(16)[None] < lengths[:, None]).long()
    labels = ids[:, 0] % 2
    return {
        "input_ids": ids * mask,
        "attention_mask": mask,
        "token_type_ids": torch.zeros_like(ids),
        "labels": labels,
    }


def main() -> None:
    torch.manual_seed(20)
    config = BertConfig(
        vocab_size=100,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=2,
    )
    model = BertForSequenceClassification(config)
    model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draw = torch.Generator().manual_seed(20)
    held_out = batch(draw)
    print("training BERT under autocast")
    for epoch in range(5):
        model.train()
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(**batch(draw)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(**held_out)
        right = (out.logits.argmax(-1) == held_out["labels"]).float().mean()
        print(
            f"epoch {epoch}: loss {loss.item():.3g}, held out {out.loss.item():.3g}, right {right.item():.3g}"
        )


if __name__ == "__main__":
    main()
