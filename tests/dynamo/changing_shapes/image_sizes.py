"""A convolutional network sees images of several sizes."""
# vary: image.shape[2]=24,40

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 8, 3, 2)

    def forward(self, image):
        return self.second(F.relu(self.first(image))).mean((2, 3))


model = Net().eval()
compiled = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    for height, width in ((32, 32), (24, 32), (40, 32), (32, 48), (56, 64)):
        compiled(torch.randn(2, 3, height, width))
