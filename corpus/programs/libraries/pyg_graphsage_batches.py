"""Train GraphSAGE from torch_geometric on induced subgraphs of changing size."""
# corpus: mode=training needs=torch_geometric

import torch
import torch.nn.functional as F
from torch_geometric.nn.models import GraphSAGE
from torch_geometric.utils import k_hop_subgraph, to_undirected

torch.manual_seed(0)
NODES = 120
edge_index = to_undirected(torch.randint(0, NODES, (2, 240)))
features = torch.randn(NODES, 12)
targets = features[:, 0] * 2 + torch.zeros(NODES).index_add(0, edge_index[1], features[edge_index[0], 1])
model = GraphSAGE(
    in_channels=12, hidden_channels=16, num_layers=2, out_channels=1, aggr="max", norm="layer_norm"
)
compiled = torch.compile(model, dynamic=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
print(f"{NODES} nodes, {edge_index.shape[1]} edges")

for step in range(10):
    seeds = torch.randperm(NODES)[:8]
    nodes, edges, mapping, _ = k_hop_subgraph(seeds, 2, edge_index, relabel_nodes=True)
    predicted = compiled(features[nodes], edges)[mapping].squeeze(-1)
    loss = F.smooth_l1_loss(predicted, targets[seeds])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: {len(nodes)} nodes, loss {loss.item():.4g}")
