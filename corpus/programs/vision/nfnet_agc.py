"""Train a normaliser-free network from timm with adaptive gradient clipping."""
# corpus: mode=training needs=timm

import torch
import torch.nn.functional as F
from timm.models.nfnet import NfCfg, NormFreeNet
from timm.utils import dispatch_clip_grad

torch.manual_seed(0)
config = NfCfg(
    depths=(1, 1, 1, 1),
    channels=(16, 24, 32, 48),
    stem_type="3x3",
    stem_chs=8,
    attn_layer="se",
    attn_kwargs={"rd_ratio": 0.5},
    num_features=0,
    act_layer="gelu",
)
model = NormFreeNet(config, num_classes=4, drop_rate=0.0, drop_path_rate=0.0)
compiled = torch.compile(model, dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
print("scaled convolutions:", sum(type(module).__name__.startswith("Scaled") for module in model.modules()))

for step in range(8):
    images = torch.randn(4, 3, 32, 32)
    labels = torch.randint(0, 4, (4,))
    loss = F.cross_entropy(compiled(images), labels)
    optimizer.zero_grad()
    loss.backward()
    dispatch_clip_grad(model.parameters(), value=0.02, mode="agc")
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4g}")
