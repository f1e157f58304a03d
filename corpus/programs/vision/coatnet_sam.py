"""Train a timm CoAtNet with sharpness-aware minimisation: two compiled passes per step."""
# corpus: mode=training needs=timm

import torch
import torch.nn.functional as F
from timm.models.maxxvit import MaxxVit, MaxxVitCfg, MaxxVitConvCfg, MaxxVitTransformerCfg

torch.manual_seed(0)


def build():
    config = MaxxVitCfg(
        embed_dim=(12, 16, 24, 32),
        depths=(1, 1, 1, 1),
        block_type=("C", "C", "T", "T"),
        stem_width=8,
        conv_cfg=MaxxVitConvCfg(),
        transformer_cfg=MaxxVitTransformerCfg(dim_head=8),
        head_hidden_size=32,
    )
    return MaxxVit(config, img_size=64, num_classes=5, drop_rate=0.0, drop_path_rate=0.0)


class SharpnessAware:
    """Climb to the worst point near the weights, then step with the gradient from there."""

    def __init__(self, base, rho):
        self.base, self.rho = base, rho

    def parameters(self):
        return [p for group in self.base.param_groups for p in group["params"] if p.grad is not None]

    @torch.no_grad()
    def climb(self):
        parameters = self.parameters()
        norm = torch.stack([p.grad.norm() for p in parameters]).norm()
        self.moves = torch._foreach_mul([p.grad for p in parameters], float(self.rho / (norm + 1e-12)))
        torch._foreach_add_(parameters, self.moves)
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        torch._foreach_sub_(self.parameters(), self.moves)
        self.base.step()
        self.base.zero_grad()


model = build()
compiled = torch.compile(model)
optimizer = SharpnessAware(torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9), rho=0.05)
print("CoAtNet stages:", len(model.stages))
for step in range(8):
    images, labels = torch.randn(4, 3, 64, 64), torch.randint(0, 5, (4,))
    loss = F.cross_entropy(compiled(images), labels)
    loss.backward()
    optimizer.climb()
    sharp = F.cross_entropy(compiled(images), labels)
    sharp.backward()
    optimizer.descend()
    print(f"step {step}: loss {loss.item():.4g}, sharp {sharp.item():.4g}")
