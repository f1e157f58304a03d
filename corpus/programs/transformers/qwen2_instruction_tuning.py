"""Qwen2 fine-tuned on padded prompt and answer pairs; only answers count in the loss."""
# corpus: mode=training needs=transformers

import random

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM, get_linear_schedule_with_warmup

PAD, ANSWER, IGNORED = 0, 1, -100


class Additions(Dataset):
    """Prompts of digits whose answer is the reversed prompt."""

    def __init__(self, count: int) -> None:
        draw = random.Random(5)
        self.prompts = [[draw.randrange(2, 12) for _ in range(draw.randrange(3, 8))] for _ in range(count)]

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        prompt = self.prompts[index]
        ids = [*prompt, ANSWER, *reversed(prompt)]
        labels = [IGNORED] * (len(prompt) + 1) + ids[len(prompt) + 1 :]
        return torch.tensor(ids), torch.tensor(labels)


def collate(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    ids = pad_sequence([r[0] for r in rows], batch_first=True, padding_value=PAD)
    labels = pad_sequence([r[1] for r in rows], batch_first=True, padding_value=IGNORED)
    return {"input_ids": ids, "labels": labels, "attention_mask": (ids != PAD).long()}


def main() -> None:
    torch.manual_seed(5)
    config = Qwen2Config(
        vocab_size=16,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attention_dropout=0.0,
        bos_token_id=1,
        eos_token_id=1,
    )
    model = Qwen2ForCausalLM._from_config(config, attn_implementation="sdpa")
    compiled = torch.compile(model)
    data = DataLoader(Additions(40), batch_size=4, shuffle=False, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, 2, len(data))
    print(f"{len(data)} batches of different lengths")
    for step, batch in enumerate(data):
        loss = compiled(**batch, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(f"step {step}: length {batch['input_ids'].shape[1]}, loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
