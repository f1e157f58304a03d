"""A recommender with sparse embedding bags and feature interactions, trained by two optimizers."""
# corpus: mode=training steps=10

import torch
import torch.nn.functional as F
from torch import nn

TABLES = (200, 500, 80)


class Recommender(nn.Module):
    def __init__(self, dense_features=6, width=16):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for rows in TABLES)
        self.bottom = nn.Sequential(nn.Linear(dense_features, 32), nn.ReLU(), nn.Linear(32, width))
        vectors = len(TABLES) + 1
        first, second = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("first", first)
        self.register_buffer("second", second)
        self.top = nn.Sequential(nn.Linear(width + len(first), 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense, bags):
        x = self.bottom(dense)
        vectors = [x, *(table(ids, offsets) for table, (ids, offsets) in zip(self.tables, bags))]
        stacked = torch.stack(vectors, dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.first, self.second]], dim=1)).squeeze(1)


def batches(count, size=32, ids_per_bag=4):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        dense = torch.randn(size, 6, generator=generator)
        offsets = torch.arange(0, size * ids_per_bag, ids_per_bag)
        bags = [(torch.randint(rows, (size * ids_per_bag,), generator=generator), offsets) for rows in TABLES]
        yield dense, bags, (dense.sum(1) > 0).float()


def main():
    torch.manual_seed(0)
    model = Recommender()
    compiled = torch.compile(model)
    sparse = torch.optim.SparseAdam(model.tables.parameters(), lr=1e-2)
    dense_parameters = [*model.bottom.parameters(), *model.top.parameters()]
    dense_optimizer = torch.optim.Adagrad(dense_parameters, lr=5e-2)
    print(f"ready: {sum(TABLES)} rows")
    for step, (dense, bags, clicked) in enumerate(batches(10)):
        loss = F.binary_cross_entropy_with_logits(compiled(dense, bags), clicked)
        sparse.zero_grad()
        dense_optimizer.zero_grad()
        loss.backward()
        sparse.step()
        dense_optimizer.step()
        touched = sum(table.weight.grad._nnz() for table in model.tables)
        print(f"step {step}: {loss.item():.4g} {touched}")


if __name__ == "__main__":
    main()
