"""DINOv2 in half precision extracts features of images of several sizes, whose positions it interpolates."""
# corpus: mode=inference needs=transformers tolerance=2e-2

import torch
import torch.nn.functional as F
from transformers import Dinov2Config, Dinov2Model


@torch.inference_mode()
def main() -> None:
    torch.manual_seed(43)
    config = Dinov2Config(
        image_size=56,
        patch_size=14,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        mlp_ratio=2,
        use_swiglu_ffn=True,
        layerscale_value=1.0,
    )
    model = Dinov2Model(config).to(torch.bfloat16).eval()
    features = torch.compile(model)
    print("DINOv2 in", next(model.parameters()).dtype)
    for step, (height, width) in enumerate(
        [(56, 56), (56, 84), (84, 56), (70, 70), (56, 56), (84, 84), (98, 56), (56, 56)]
    ):
        pixels = torch.randn(2, 3, height, width).to(torch.bfloat16)
        out = features(pixel_values=pixels)
        patches = out.last_hidden_state[:, 1:]
        alike = F.cosine_similarity(out.pooler_output[0].float(), out.pooler_output[1].float(), dim=0)
        mean = patches.float().abs().mean().item()
        print(f"image {step}: {patches.shape[1]} patches, mean {mean:.3g}, alike {alike.item():.2g}")


main()
