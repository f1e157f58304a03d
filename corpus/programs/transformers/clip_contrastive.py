"""CLIP trained with its contrastive loss; both towers are compiled apart, the temperature is learnt."""
# corpus: mode=training needs=transformers

import math

import torch
import torch.nn.functional as F
from transformers import CLIPConfig, CLIPModel


def contrastive(similarity: torch.Tensor) -> torch.Tensor:
    wanted = torch.arange(len(similarity))
    return (F.cross_entropy(similarity, wanted) + F.cross_entropy(similarity.T, wanted)) / 2


def main() -> None:
    torch.manual_seed(42)
    tower = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "hidden_size": 48}
    text = {**tower, "vocab_size": 64, "max_position_embeddings": 12, "bos_token_id": 0, "eos_token_id": 63}
    config = CLIPConfig(
        text_config=text,
        vision_config={**tower, "image_size": 32, "patch_size": 8},
        projection_dim=32,
    )
    model = CLIPModel(config).train()
    model.vision_model = torch.compile(model.vision_model)
    model.text_model = torch.compile(model.text_model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
    print(f"CLIP, temperature {model.logit_scale.exp().item():.4g}")
    for step in range(8):
        words = torch.randint(1, 62, (6, 12))
        words[:, -1] = 63
        pictures = torch.randn(6, 3, 32, 32) + words[:, :3].float().view(6, 3, 1, 1) / 30
        out = model(input_ids=words, pixel_values=pictures, attention_mask=torch.ones_like(words))
        loss = contrastive(out.logits_per_image)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        print(f"step {step}: loss {loss.item():.4g}, temperature {model.logit_scale.exp().item():.4g}")


if __name__ == "__main__":
    main()
