"""Classify the nodes of a graph with a graph convolutional network from torch_geometric."""
# corpus: mode=training needs=torch_geometric

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import NormalizeFeatures, ToUndirected


def communities(nodes, classes, generator):
    """Nodes of one class are mostly linked with each other."""
    labels = torch.arange(nodes) % classes
    source = torch.randint(0, nodes, (nodes * 6,), generator=generator)
    target = torch.randint(0, nodes, (nodes * 6,), generator=generator)
    same = labels[source] == labels[target]
    kept = same | (torch.rand(len(source), generator=generator) < 0.1)
    features = F.one_hot(labels, classes).float().repeat(1, 4)
    features = features + torch.rand(features.shape, generator=generator)
    return Data(x=features, edge_index=torch.stack([source[kept], target[kept]]), y=labels)


class GCN(torch.nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.first = GCNConv(inputs, hidden)
        self.second = GCNConv(hidden, classes)

    def forward(self, x, edge_index):
        x = F.relu(self.first(x, edge_index))
        return self.second(x, edge_index).log_softmax(dim=-1)


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    data = NormalizeFeatures()(ToUndirected()(communities(60, 3, generator)))
    training = torch.rand(60, generator=generator) < 0.5
    model = GCN(data.num_features, 16, 3)
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    print(f"{data.num_nodes} nodes, {data.num_edges} edges")
    for step in range(10):
        model.train()
        output = compiled(data.x, data.edge_index)
        loss = F.nll_loss(output[training], data.y[training])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        accuracy = (output[~training].argmax(1) == data.y[~training]).float().mean()
        print(f"step {step}: loss {loss.item():.4g}, accuracy {accuracy.item():.3f}")


if __name__ == "__main__":
    main()
