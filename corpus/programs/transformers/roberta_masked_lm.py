"""RoBERTa trained with dynamic masking by the data collator's rule: 15 % of tokens, of those 80 % hidden."""
# corpus: mode=training needs=transformers

import torch
from torch import Tensor
from transformers import RobertaConfig, RobertaForMaskedLM

PAD, MASK, FIRST, VOCABULARY = 1, 4, 5, 120


def masked(ids: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs with hidden tokens, and labels that ask for them alone."""
    chosen = (torch.rand(ids.shape, generator=draw) < 0.15) & (ids >= FIRST)
    labels = ids.masked_fill(~chosen, -100)
    kind = torch.rand(ids.shape, generator=draw)
    noise = torch.randint(FIRST, VOCABULARY, ids.shape, generator=draw)
    inputs = torch.where(chosen & (kind < 0.8), MASK, ids)
    inputs = torch.where(chosen & (kind >= 0.9), noise, inputs)
    return inputs, labels


torch.manual_seed(22)
config = RobertaConfig(
    vocab_size=VOCABULARY,
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=40,
    type_vocab_size=1,
    pad_token_id=PAD,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
model = RobertaForMaskedLM(config).train()
train_step = torch.compile(model)
optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
draw = torch.Generator().manual_seed(22)
print("masked language model with", model.num_parameters(), "parameters")

for step in range(10):
    ids = torch.randint(FIRST, FIRST + 20, (4, 24), generator=draw)
    ids[:, 20 + step % 4 :] = PAD
    inputs, labels = masked(ids, draw)
    loss = train_step(input_ids=inputs, attention_mask=(ids != PAD).long(), labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: {int((labels != -100).sum())} hidden, loss {loss.item():.4g}")
