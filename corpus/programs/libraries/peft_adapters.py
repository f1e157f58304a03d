"""Two adapters on one compiled base: trained in turn, switched by name, combined, and disabled."""
# corpus: mode=training needs=transformers,peft

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn


class Classifier(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.lift = nn.Linear(features, 64)
        self.blocks = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = F.gelu(self.lift(x))
        for block in self.blocks:
            h = h + F.gelu(block(self.norm(h)))
        return self.head(h)


def task(name: str) -> tuple[Tensor, Tensor]:
    x = torch.randn(32, 10)
    return x, (x[:, 0 if name == "first" else 5] > 0).long()


def main() -> None:
    torch.manual_seed(64)
    lora = LoraConfig(
        r=4, lora_alpha=16, target_modules=["lift", "blocks.0", "blocks.1"], init_lora_weights=True
    )
    model = get_peft_model(Classifier(10, 2), lora, adapter_name="first")
    model.add_adapter("second", LoraConfig(r=2, use_dora=True, target_modules=["lift", "head"]))
    compiled = torch.compile(model)
    print("adapters:", ", ".join(model.peft_config))
    for name in ("first", "second"):
        model.set_adapter(name)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.2)
        for step in range(4):
            x, labels = task(name)
            loss = F.cross_entropy(compiled(x), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"{name} adapter, step {step}: loss {loss.item():.4g}")
    x, labels = task("first")
    with torch.no_grad():
        with model.disable_adapter():
            print(f"no adapter: loss {F.cross_entropy(compiled(x), labels).item():.4g}")
        model.set_adapter("first")
        print(f"first adapter: loss {F.cross_entropy(compiled(x), labels).item():.4g}")


if __name__ == "__main__":
    main()
