"""OPT with a classification head trained as a reward model on pairs of left-padded answers."""
# corpus: mode=training needs=transformers

import torch
import torch.nn.functional as F
from transformers import OPTConfig, OPTForSequenceClassification

PAD = 1
torch.manual_seed(12)
config = OPTConfig(
    vocab_size=128,
    hidden_size=64,
    word_embed_proj_dim=32,
    ffn_dim=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    num_labels=1,
    pad_token_id=PAD,
    dropout=0.0,
    attention_dropout=0.0,
)
model = OPTForSequenceClassification(config)
reward = torch.compile(model)
optimizer = torch.optim.RAdam(model.parameters(), lr=1e-3)
print("reward model with", model.num_parameters(), "parameters")


def answers(good: bool) -> dict[str, torch.Tensor]:
    """Good answers use the upper half of the vocabulary; each has its own length."""
    ids = torch.full((4, 14), PAD)
    for row in range(4):
        length = 6 + 2 * row
        ids[row, -length:] = torch.randint(64 if good else 4, 128 if good else 64, (length,))
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


for step in range(10):
    chosen, rejected = answers(True), answers(False)
    both = {key: torch.cat([chosen[key], rejected[key]]) for key in chosen}
    better, worse = reward(**both, use_cache=False).logits.squeeze(-1).chunk(2)
    loss = -F.logsigmoid(better - worse).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4g}, right {(better > worse).float().mean().item():.4g}")
