"""Graphs with other numbers of nodes and edges each time."""
# vary: edges.shape[1]=30,12

import torch
from torch import nn


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, nodes, edges):
        messages = self.linear(nodes)[edges[0]]
        return torch.zeros_like(nodes).index_add(0, edges[1], messages)


compiled = torch.compile(Convolution(), backend="aot_eager")
for nodes, edges in ((10, 24), (10, 30), (14, 12), (9, 40)):
    compiled(torch.randn(nodes, 8), torch.randint(0, 9, (2, edges))).sum().backward()
