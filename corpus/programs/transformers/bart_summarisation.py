"""BART learns to summarise; afterwards its compiled decoder generates with beam search."""
# corpus: mode=training needs=transformers

import torch
from transformers import BartConfig, BartForConditionalGeneration

torch.manual_seed(27)
config = BartConfig(
    vocab_size=90,
    d_model=48,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=96,
    decoder_ffn_dim=96,
    max_position_embeddings=64,
    dropout=0.0,
    attention_dropout=0.0,
    activation_dropout=0.0,
    scale_embedding=True,
    init_std=0.1,
    bos_token_id=0,
    pad_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=2,
    forced_eos_token_id=2,
)
model = BartForConditionalGeneration(config)
model.model.encoder.compile()
model.model.decoder.compile(dynamic=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
print("encoder and decoder compiled apart")

model.train()
for step in range(8):
    article = torch.randint(3, 90, (4, 22))
    summary = article[:, ::4].contiguous()
    mask = torch.ones_like(article)
    mask[0, 18:] = 0
    loss = model(input_ids=article, attention_mask=mask, labels=summary, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4g}")

model.eval()
article = torch.randint(3, 90, (2, 22))
beams = model.generate(
    article, num_beams=3, max_new_tokens=6, min_new_tokens=4, do_sample=False, early_stopping=True
)
print("generated", beams.tolist())
