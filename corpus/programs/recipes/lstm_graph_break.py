"""An LSTM between compiled layers: torch.compile breaks the graph at the LSTM and goes on behind it."""
# corpus: mode=training steps=10

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Tagger(nn.Module):
    def __init__(self, vocab=40, width=24, hidden=32, tags=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.norm = nn.LayerNorm(2 * hidden)
        self.out = nn.Linear(2 * hidden, tags)

    def forward(self, tokens, lengths):
        x = torch.tanh(self.embed(tokens))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=tokens.shape[1])
        return self.out(nn.functional.gelu(self.norm(h)))


class Smoother(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, x):
        return x + self.gru(x)[0]


def main():
    torch.manual_seed(0)
    model = nn.ModuleList([Tagger(), Smoother()])
    tagger, smoother = torch.compile(model[0]), torch.compile(model[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tokens = torch.randint(1, 40, (12, 15))
    lengths = torch.randint(5, 16, (12,))
    mask = torch.arange(15) < lengths[:, None]
    targets = torch.where(mask, tokens % 4, -100)
    print("ready")
    for step in range(10):
        logits = smoother(tagger(tokens, lengths))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
