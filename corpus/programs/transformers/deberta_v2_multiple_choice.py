"""DeBERTa-v2 with disentangled attention learns to choose among continuations."""
# corpus: mode=training needs=transformers

import torch
from transformers import DebertaV2Config, DebertaV2ForMultipleChoice

torch.manual_seed(25)
config = DebertaV2Config(
    vocab_size=160,
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=64,
    relative_attention=True,
    position_buckets=8,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
    pos_att_type=["p2c", "c2p"],
    position_biased_input=False,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    pooler_dropout=0.0,
    type_vocab_size=0,
    pooler_hidden_size=48,
)
model = DebertaV2ForMultipleChoice(config)
model.train()
choose = torch.compile(model)
optimizer = torch.optim.Adamax(model.parameters(), lr=2e-3)
print("multiple choice among four, relative positions in", config.position_buckets, "buckets")

for step in range(8):
    ids = torch.randint(3, 160, (2, 4, 18))
    right = torch.randint(0, 4, (2,))
    ids[torch.arange(2), right, 5] = 1
    mask = torch.ones_like(ids)
    mask[:, 3, 14:] = 0
    out = choose(input_ids=ids, attention_mask=mask, labels=right)
    out.loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {out.loss.item():.4g}, chosen {out.logits.argmax(-1).tolist()}")
