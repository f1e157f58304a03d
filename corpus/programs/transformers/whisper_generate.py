"""Whisper transcribes short clips with a static cache and a compiled forward."""
# corpus: mode=inference needs=transformers

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(29)
config = WhisperConfig(
    vocab_size=120,
    num_mel_bins=16,
    d_model=48,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=96,
    decoder_ffn_dim=96,
    max_source_positions=32,
    max_target_positions=40,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=3,
    init_std=0.2,
    suppress_tokens=None,
    begin_suppress_tokens=None,
)
model = WhisperForConditionalGeneration(config).eval()
model.generation_config.cache_implementation = "static"
model.generation_config.max_length = 20
model.generation_config.suppress_tokens = None
model.generation_config.begin_suppress_tokens = None
model.forward = torch.compile(model.forward, fullgraph=True)
print("Whisper, static cache")

with torch.inference_mode():
    for clip in range(8):
        features = torch.randn(1, 16, 64)
        words = model.generate(input_features=features, do_sample=False, max_new_tokens=8, min_new_tokens=8)
        print(f"clip {clip}: {words[0].tolist()}")
