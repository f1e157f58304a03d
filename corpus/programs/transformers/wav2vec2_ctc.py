"""Wav2Vec2 fine-tuned for speech recognition with CTC; the convolutional feature encoder is frozen."""
# corpus: mode=training needs=transformers

import torch
from torch import Tensor
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC


def speech(words: Tensor) -> Tensor:
    """Each letter is a tone of 400 samples."""
    times = torch.arange(400) / 16000
    tones = torch.sin(2 * torch.pi * (200 + 150 * words[..., None]) * times)
    return tones.flatten(1) + 0.01 * torch.randn(words.shape[0], words.shape[1] * 400)


def main() -> None:
    torch.manual_seed(45)
    config = Wav2Vec2Config(
        vocab_size=12,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        conv_dim=(16, 16, 16),
        conv_kernel=(10, 3, 3),
        conv_stride=(5, 4, 4),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
        layerdrop=0.0,
        apply_spec_augment=False,
        ctc_loss_reduction="mean",
        ctc_zero_infinity=True,
        pad_token_id=0,
    )
    model = Wav2Vec2ForCTC(config)
    model.freeze_feature_encoder()
    model.train()
    recognise = torch.compile(model)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    print("frozen:", sum(not p.requires_grad for p in model.parameters()), "tensors")
    for step in range(8):
        words = torch.randint(1, 12, (3, 8))
        waves = speech(words)
        present = torch.ones(waves.shape, dtype=torch.long)
        present[2, 2400:] = 0
        labels = words.clone()
        labels[2, 6:] = -100
        loss = recognise(input_values=waves, attention_mask=present, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
