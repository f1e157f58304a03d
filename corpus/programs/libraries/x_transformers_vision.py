"""x-transformers: an image encoder with register tokens and talking heads, and a captioning decoder."""
# corpus: mode=training needs=x-transformers

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from x_transformers import Decoder, Encoder, TransformerWrapper, ViTransformerWrapper


class Captioner(nn.Module):
    """Reads a picture and writes words that attend to its patches."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.encoder = ViTransformerWrapper(
            image_size=32,
            patch_size=8,
            num_register_tokens=2,
            attn_layers=Encoder(dim=48, depth=2, heads=4, attn_dim_head=12, attn_pre_talking_heads=True),
        )
        self.decoder = TransformerWrapper(
            num_tokens=words,
            max_seq_len=16,
            attn_layers=Decoder(
                dim=48, depth=2, heads=4, attn_dim_head=12, cross_attend=True, rel_pos_bias=True
            ),
        )

    def forward(self, pixels: Tensor, text: Tensor) -> Tensor:
        patches = self.encoder(pixels, return_embeddings=True)
        logits = self.decoder(text[:, :-1], context=patches)
        return F.cross_entropy(logits.transpose(1, 2), text[:, 1:], ignore_index=0)


torch.manual_seed(68)
model = Captioner(40)
train = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
print("captioner with", sum(p.numel() for p in model.parameters()), "parameters")
for step in range(8):
    shade = torch.randint(1, 10, (4,))
    pixels = torch.randn(4, 3, 32, 32) * 0.2 + shade.view(4, 1, 1, 1) / 5
    text = torch.stack([torch.full((4,), 39), shade, shade + 10, shade + 20, torch.zeros_like(shade)], 1)
    loss = train(pixels, text)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4g}")
