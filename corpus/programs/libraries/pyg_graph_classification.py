"""Classify whole graphs with GIN layers, jumping knowledge and pooling over batches of graphs."""
# corpus: mode=training needs=torch_geometric

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MLP, GINConv, JumpingKnowledge, global_add_pool, global_max_pool


def ring_or_star(index):
    """Even graphs are rings and odd ones stars, of 5 to 9 nodes."""
    nodes = 5 + index % 5
    arange = torch.arange(nodes)
    if index % 2 == 0:
        edges = torch.stack([arange, (arange + 1) % nodes])
    else:
        edges = torch.stack([torch.zeros(nodes - 1, dtype=torch.long), arange[1:]])
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    return Data(x=torch.randn(nodes, 4), edge_index=edges, y=torch.tensor([index % 2]))


class Classifier(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.convolutions = torch.nn.ModuleList(
            GINConv(MLP([inputs, width, width], norm=None)) for inputs in (4, width)
        )
        self.jump = JumpingKnowledge("cat")
        self.head = MLP([4 * width, width, 2], norm=None, dropout=0.0)

    def forward(self, x, edge_index, batch, graphs: int):
        layers = []
        for convolution in self.convolutions:
            x = convolution(x, edge_index).relu()
            layers.append(x)
        x = self.jump(layers)
        pooled = torch.cat([global_add_pool(x, batch, graphs), global_max_pool(x, batch, graphs)], dim=1)
        return self.head(pooled)


def main():
    torch.manual_seed(0)
    loader = DataLoader([ring_or_star(index) for index in range(64)], batch_size=8, shuffle=True)
    model = Classifier(16)
    compiled = torch.compile(model, dynamic=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    print(f"{len(loader.dataset)} graphs in {len(loader)} batches")
    for step, data in enumerate(loader):
        logits = compiled(data.x, data.edge_index, data.batch, data.num_graphs)
        loss = F.cross_entropy(logits, data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {data.num_nodes} nodes, loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
