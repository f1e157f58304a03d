"""T5 trained to reverse sequences, with Adafactor's own relative steps, then asked to generate."""
# corpus: mode=training needs=transformers

import torch
from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration
from transformers.optimization import Adafactor, AdafactorSchedule

PAD, END = 0, 1


def pairs(count: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sources of several lengths with their padding mask, and the same reversed as labels."""
    source = torch.randint(2, 30, (count, length))
    labels = torch.full((count, length), -100)
    mask = torch.zeros(count, length, dtype=torch.long)
    for row in range(count):
        size = length - row % 4
        source[row, size - 1] = END
        source[row, size:] = PAD
        mask[row, :size] = 1
        labels[row, : size - 1] = source[row, : size - 1].flip(0)
        labels[row, size - 1] = END
    return source, mask, labels


def main() -> None:
    torch.manual_seed(26)
    config = T5Config(
        vocab_size=32,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        decoder_start_token_id=PAD,
        pad_token_id=PAD,
        eos_token_id=END,
    )
    model = T5ForConditionalGeneration(config).train()
    compiled = torch.compile(model)
    optimizer = Adafactor(
        model.parameters(), scale_parameter=True, relative_step=True, warmup_init=True, lr=None
    )
    schedule = AdafactorSchedule(optimizer, initial_lr=1e-3)
    print("T5, encoder and decoder of", config.num_layers, "layers")
    for step in range(8):
        source, mask, labels = pairs(8, 12)
        loss = compiled(input_ids=source, attention_mask=mask, labels=labels, use_cache=False).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}")
    model.eval()
    source, mask, _ = pairs(2, 12)
    print(
        "generated", model.generate(source, attention_mask=mask, max_new_tokens=6, do_sample=False).tolist()
    )


if __name__ == "__main__":
    main()
