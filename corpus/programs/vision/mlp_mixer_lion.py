"""Train a timm MLP-Mixer with Lion in a fully compiled training step, optimizer included."""
# corpus: mode=training needs=timm

import torch
import torch.nn.functional as F
from timm.models.mlp_mixer import MlpMixer
from timm.optim import Lion


def main():
    torch.manual_seed(0)
    model = MlpMixer(
        num_classes=10, img_size=32, patch_size=8, num_blocks=3, embed_dim=32, drop_path_rate=0.0
    )
    optimizer = Lion(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)

    @torch.compile
    def forward_backward(images, labels):
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        return loss.detach()

    update = torch.compile(optimizer.step)
    print(f"mixer with {len(model.blocks)} blocks")
    for step in range(8):
        labels = torch.arange(8) % 10
        images = torch.randn(8, 3, 32, 32) + labels.view(-1, 1, 1, 1)
        loss = forward_backward(images, labels)
        update()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
