"""torchtitan's Llama 3 built from its configuration, each block compiled as torchtitan does."""
# corpus: mode=training needs=torchtitan

import dataclasses

import torch
from torchtitan.components.loss import cross_entropy_loss
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry


def small() -> torch.nn.Module:
    """The debug model with two of its blocks, and attention that runs on a CPU."""
    config = model_registry("debugmodel", attn_backend="varlen").model
    layers = config.layers[:2]
    for layer in layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    return dataclasses.replace(config, layers=layers).build()


def main() -> None:
    torch.manual_seed(69)
    model = small()
    model.init_states()
    model.train()
    for name, block in model.layers.named_children():
        model.layers.register_module(name, torch.compile(block, fullgraph=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 2))
    print("torchtitan Llama 3 with", sum(p.numel() for p in model.parameters()), "parameters")
    for step in range(8):
        tokens = torch.randint(0, 200, (2, 33))
        inputs, labels = tokens[:, :-1], tokens[:, 1:].contiguous()
        loss = cross_entropy_loss(model(inputs), labels) / labels.numel()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        warm_up.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}, gradient norm {norm.item():.4g}")


if __name__ == "__main__":
    main()
