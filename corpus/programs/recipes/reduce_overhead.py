"""mode="reduce-overhead": CUDA graphs where there is a GPU, plain compiled code on a CPU."""
# corpus: mode=inference steps=12

import torch
from torch import nn


class GRUCellDecoder(nn.Module):
    """One step of a character model, called in a loop: the case in which launch overhead dominates."""

    def __init__(self, vocab=32, width=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.gates = nn.Linear(2 * width, 2 * width)
        self.candidate = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, vocab)

    def forward(self, token, state):
        x = self.embed(token)
        reset, update = torch.sigmoid(self.gates(torch.cat([x, state], -1))).chunk(2, -1)
        candidate = torch.tanh(self.candidate(torch.cat([x, reset * state], -1)))
        state = (1 - update) * state + update * candidate
        return self.out(state), state


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = GRUCellDecoder().to(device).eval()
step_fn = torch.compile(model, mode="reduce-overhead")

token = torch.zeros(4, dtype=torch.long, device=device)
state = torch.zeros(4, 48, device=device)
print("ready")
with torch.no_grad():
    for position in range(12):
        torch.compiler.cudagraph_mark_step_begin()
        logits, state = step_fn(token, state)
        state = state.clone()
        token = logits.argmax(-1)
        print(f"{position}: tokens {token.tolist()} logit {logits.max().item():.4g}")
