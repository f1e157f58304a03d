"""Train a timm Swin transformer with shifted windows and binary cross-entropy on multi-hot labels."""
# corpus: mode=training needs=timm

import torch
from timm.loss import BinaryCrossEntropy
from timm.models.swin_transformer import SwinTransformer

torch.manual_seed(0)
model = SwinTransformer(
    img_size=32,
    patch_size=2,
    window_size=4,
    embed_dim=16,
    depths=(2, 2),
    num_heads=(2, 4),
    num_classes=6,
    drop_path_rate=0.0,
)
criterion = BinaryCrossEntropy(smoothing=0.1, target_threshold=0.2)
optimizer = torch.optim.Adagrad(model.parameters(), lr=5e-3)


def step(images, labels):
    loss = criterion(model(images), labels)
    loss.backward()
    return loss


compiled_step = torch.compile(step)
print("windows of", model.layers[0].blocks[0].window_size)
for index in range(8):
    images = torch.randn(4, 3, 32, 32)
    labels = torch.randint(0, 6, (4,))
    loss = compiled_step(images, labels)
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"step {index}: loss {loss.item():.4g}, gradient norm {norm.item():.4g}")
