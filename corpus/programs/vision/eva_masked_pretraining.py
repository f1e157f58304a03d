"""Pretrain a timm EVA-02 block stack (rotary embeddings, SwiGLU) to predict features of masked patches."""
# corpus: mode=training needs=timm

import torch
import torch.nn as nn
import torch.nn.functional as F
from timm.models.eva import Eva


class MaskedFeatureModel(nn.Module):
    def __init__(self, backbone, target_dim):
        super().__init__()
        self.backbone = backbone
        self.mask_token = nn.Parameter(torch.zeros(1, 1, backbone.embed_dim))
        self.head = nn.Linear(backbone.embed_dim, target_dim)

    def forward(self, images, mask, targets):
        tokens = self.backbone.patch_embed(images)
        tokens = torch.where(mask.unsqueeze(-1), self.mask_token, tokens)
        tokens, rope = self.backbone._pos_embed(tokens)[:2]
        for block in self.backbone.blocks:
            tokens = block(tokens, rope=rope)
        predicted = self.head(self.backbone.norm(tokens)[:, self.backbone.num_prefix_tokens :])
        similarity = F.cosine_similarity(predicted, targets, dim=-1)
        return -(similarity * mask).sum() / mask.sum()


def main():
    torch.manual_seed(0)
    backbone = Eva(
        img_size=32,
        patch_size=8,
        embed_dim=32,
        depth=2,
        num_heads=2,
        num_classes=0,
        swiglu_mlp=True,
        use_rot_pos_emb=True,
        scale_mlp=True,
        mlp_ratio=2.0,
        global_pool="avg",
    )
    model = MaskedFeatureModel(backbone, target_dim=16)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    print(f"EVA with {backbone.patch_embed.num_patches} patches")
    for step in range(8):
        images = torch.randn(4, 3, 32, 32)
        targets = torch.randn(4, 16, 16)
        mask = torch.rand(4, 16) < 0.4
        loss = compiled(images, mask, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
