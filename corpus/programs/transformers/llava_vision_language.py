"""LLaVA: features of a CLIP tower take the places of image tokens in a Llama; the projector is trained."""
# corpus: mode=training needs=transformers

import torch
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

IMAGE, PATCHES = 90, 16


def main() -> None:
    torch.manual_seed(50)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
        ),
        text_config=LlamaConfig(
            vocab_size=100,
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        ),
        image_token_index=IMAGE,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        image_seq_length=PATCHES,
    )
    model = LlavaForConditionalGeneration(config)
    model.requires_grad_(False)
    model.model.multi_modal_projector.requires_grad_(True)
    model.train()
    model.model.vision_tower = torch.compile(model.model.vision_tower)
    model.model.language_model = torch.compile(model.model.language_model)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    print(f"{sum(p.numel() for p in trained)} parameters of the projector are trained")
    for step in range(8):
        words = torch.randint(2, 89, (2, 10))
        ids = torch.cat([torch.full((2, PATCHES), IMAGE), words], 1)
        labels = ids.masked_fill(ids == IMAGE, -100)
        pixels = torch.randn(2, 3, 32, 32)
        loss = model(
            input_ids=ids, pixel_values=pixels, attention_mask=torch.ones_like(ids), labels=labels
        ).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
