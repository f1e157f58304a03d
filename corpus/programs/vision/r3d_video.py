"""Train torchvision's R(2+1)D video network on clips, with gradients scaled by clip length."""
# corpus: mode=training needs=torchvision

import torch
from torch import nn
from torchvision.models.video.resnet import BasicBlock, Conv2Plus1D, R2Plus1dStem, VideoResNet


def moving_square(batch, frames, direction):
    """A bright square that moves left or right."""
    clips = torch.zeros(batch, 3, frames, 24, 24)
    for frame in range(frames):
        start = 4 + frame * 2
        left = torch.where(direction > 0, start, 20 - start)
        for index in range(batch):
            clips[index, :, frame, 8:14, left[index] : left[index] + 4] = 1.0
    return clips


def main():
    torch.manual_seed(0)
    model = VideoResNet(
        block=BasicBlock,
        conv_makers=[Conv2Plus1D] * 4,
        layers=[1, 1, 1, 1],
        stem=R2Plus1dStem,
        num_classes=2,
    )
    for module in model.modules():
        if isinstance(module, nn.BatchNorm3d):
            module.momentum = 0.05
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.003, momentum=0.9)
    print("video network:", type(model.stem).__name__)
    for step in range(8):
        direction = torch.randint(0, 2, (2,)) * 2 - 1
        clips = moving_square(2, 8, direction) + 0.05 * torch.randn(2, 3, 8, 24, 24)
        logits = compiled(clips)
        loss = nn.functional.soft_margin_loss(logits[:, 0] - logits[:, 1], direction.float())
        optimizer.zero_grad()
        (loss / clips.shape[2]).backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
