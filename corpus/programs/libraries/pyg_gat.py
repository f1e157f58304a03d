"""Predict links with a graph attention encoder from torch_geometric and sampled negative edges."""
# corpus: mode=training needs=torch_geometric

import torch
import torch.nn.functional as F
from torch_geometric import seed_everything
from torch_geometric.nn import GATv2Conv
from torch_geometric.utils import erdos_renyi_graph, negative_sampling


class Encoder(torch.nn.Module):
    def __init__(self, nodes, width):
        super().__init__()
        self.embedding = torch.nn.Embedding(nodes, width)
        self.first = GATv2Conv(width, width, heads=2, edge_dim=2)
        self.second = GATv2Conv(2 * width, width, heads=2, concat=False, edge_dim=2)

    def forward(self, edge_index, edge_attributes):
        x = F.elu(self.first(self.embedding.weight, edge_index, edge_attributes))
        return self.second(x, edge_index, edge_attributes)


def link_logits(z, pairs):
    return (z[pairs[0]] * z[pairs[1]]).sum(dim=-1)


seed_everything(0)  # negative edges are sampled by Python's random numbers
nodes = 30
edge_index = erdos_renyi_graph(nodes, 0.15)
attributes = torch.rand(edge_index.shape[1], 2)
encoder = Encoder(nodes, 8)
encode = torch.compile(encoder)
score = torch.compile(link_logits, dynamic=True)
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
print(f"{edge_index.shape[1]} edges")

for step in range(8):
    z = encode(edge_index, attributes)
    negatives = negative_sampling(edge_index, nodes, num_neg_samples=40 + 10 * step)
    positive, negative = score(z, edge_index), score(z, negatives)
    loss = F.softplus(-positive).mean() + F.softplus(negative).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    margin = positive.mean() - negative.mean()
    print(f"step {step}: loss {loss.item():.4g}, margin {margin.item():.4g}")
