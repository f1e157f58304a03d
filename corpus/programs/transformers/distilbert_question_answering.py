"""DistilBERT trained to find the span of an answer, its encoder frozen at first and thawed later."""
# corpus: mode=training needs=transformers

import torch
from transformers import DistilBertConfig, DistilBertForQuestionAnswering

torch.manual_seed(23)
config = DistilBertConfig(
    vocab_size=150,
    dim=64,
    hidden_dim=128,
    n_layers=2,
    n_heads=4,
    max_position_embeddings=64,
    dropout=0.0,
    attention_dropout=0.0,
    qa_dropout=0.0,
)
model = DistilBertForQuestionAnswering(config)
model.train()
answer = torch.compile(model)
print("question answering with", model.num_parameters(), "parameters")


def optimizer_of(trained: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(trained, lr=2e-3, amsgrad=True)


for phase, frozen in enumerate((True, False)):
    model.distilbert.requires_grad_(not frozen)
    optimizer = optimizer_of([p for p in model.parameters() if p.requires_grad])
    for step in range(5):
        ids = torch.randint(10, 150, (4, 30))
        start = torch.randint(1, 20, (4,))
        end = start + 3
        rows = torch.arange(4)
        ids[rows, start], ids[rows, end] = 1, 2
        out = answer(input_ids=ids, start_positions=start, end_positions=end)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found = (out.start_logits.argmax(-1) == start).sum().item()
        print(f"phase {phase}, step {step}: loss {out.loss.item():.4g}, {found} starts found")
