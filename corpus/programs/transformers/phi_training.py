"""Phi with rotary embeddings on part of each head: the loss is computed outside of the compiled model."""
# corpus: mode=training needs=transformers

import torch
import torch.nn.functional as F
from transformers import PhiConfig, PhiForCausalLM


def shifted_loss(logits: torch.Tensor, tokens: torch.Tensor, smoothing: float) -> torch.Tensor:
    wanted = tokens[:, 1:].reshape(-1)
    return F.cross_entropy(logits[:, :-1].reshape(wanted.numel(), -1), wanted, label_smoothing=smoothing)


torch.manual_seed(10)
config = PhiConfig(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    partial_rotary_factor=0.5,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attention_dropout=0.0,
)
model = PhiForCausalLM(config)
model.model = torch.compile(model.model)

# The embedding stays as it is, everything else is trained.
model.get_input_embeddings().requires_grad_(False)
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(trained, lr=0.05, momentum=0.9)
print(f"{sum(p.numel() for p in trained)} of {model.num_parameters()} parameters are trained")

for step in range(10):
    tokens = torch.randint(0, 32, (4, 16))
    loss = shifted_loss(model(input_ids=tokens, use_cache=False).logits, tokens, smoothing=0.1)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    print(f"step {step}: loss {loss.item():.4g}")
