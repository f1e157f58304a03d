"""Extract intermediate features from a timm BEiT and classify by cosine similarity to prototypes."""
# corpus: mode=inference needs=timm

import torch
import torch.nn.functional as F
from timm.models.beit import Beit

torch.manual_seed(0)
model = Beit(
    img_size=32,
    patch_size=8,
    embed_dim=48,
    depth=3,
    num_heads=4,
    num_classes=0,
    init_values=0.1,
    use_abs_pos_emb=False,
    use_rel_pos_bias=True,
).eval()


@torch.compile
def describe(images):
    """One descriptor per image: the class token, and the average of the patches of two blocks."""
    final, intermediates = model.forward_intermediates(images, indices=[0, 2])
    pooled = [features.mean(dim=(2, 3)) for features in intermediates]
    return F.normalize(torch.cat([final[:, 0], *pooled], dim=1), dim=1)


print(
    "relative position tables:", sum("relative_position_bias_table" in n for n, _ in model.named_parameters())
)
with torch.no_grad():
    prototypes = describe(torch.randn(6, 3, 32, 32))
    for index in range(8):
        queries = torch.randn(6, 3, 32, 32)
        similarity = describe(queries) @ prototypes.T
        nearest = similarity.argmax(dim=1).tolist()
        print(f"query {index}: mean {similarity.mean().item():.4g}, nearest {nearest[0]}")
