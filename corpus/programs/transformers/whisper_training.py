"""Whisper fine-tuned on log-mel spectrograms with teacher forcing; the encoder's positions stay fixed."""
# corpus: mode=training needs=transformers

import math

import torch
from torch import Tensor
from transformers import WhisperConfig, WhisperForConditionalGeneration


def spectrogram(pitches: Tensor, mels: int, frames: int) -> Tensor:
    """One ridge per utterance at its own pitch, with a little noise."""
    bands = torch.arange(mels)[None, :, None]
    times = torch.arange(frames)[None, None, :]
    centre = pitches[:, None, None] + 3 * torch.sin(times * math.pi / 16)
    return torch.exp(-((bands - centre) ** 2) / 4) + 0.05 * torch.randn(len(pitches), mels, frames)


def main() -> None:
    torch.manual_seed(28)
    config = WhisperConfig(
        vocab_size=80,
        num_mel_bins=16,
        d_model=48,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
        max_source_positions=32,
        max_target_positions=24,
        dropout=0.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    model.train()
    model.forward = torch.compile(model.forward)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    print(f"{len(trained)} trained tensors")
    for step in range(8):
        pitch = torch.randint(2, 14, (4,)).float()
        words = (pitch.long()[:, None] * 4 + torch.arange(6)) % 70 + 5
        loss = model(input_features=spectrogram(pitch, 16, 64), labels=words).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}")


main()
