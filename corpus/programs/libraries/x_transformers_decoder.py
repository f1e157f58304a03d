"""x-transformers: a decoder with rotary positions and gated feed-forwards learns to continue sequences."""
# corpus: mode=training needs=x-transformers

import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper


def main() -> None:
    torch.manual_seed(67)
    network = TransformerWrapper(
        num_tokens=64,
        max_seq_len=48,
        attn_layers=Decoder(
            dim=64,
            depth=2,
            heads=4,
            attn_dim_head=16,
            attn_kv_heads=2,
            rotary_pos_emb=True,
            use_rmsnorm=True,
            ff_glu=True,
            ff_swish=True,
            ff_no_bias=True,
            attn_qk_norm=True,
        ),
    )
    model = AutoregressiveWrapper(network, pad_value=0)
    model.train()
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    print("decoder with", sum(p.numel() for p in model.parameters()), "parameters")
    for step in range(10):
        start = torch.randint(1, 30, (4, 1))
        stride = torch.randint(1, 3, (4, 1))
        sequence = (start + stride * torch.arange(16)) % 63 + 1
        loss = compiled(sequence)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}")
    prompts = torch.tensor([[5, 6, 7, 8], [10, 12, 14, 16]])
    print("continued", model.generate(prompts, 6, temperature=0.0, cache_kv=True).tolist())


if __name__ == "__main__":
    main()
