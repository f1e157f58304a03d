"""Accelerate in bf16 mixed precision with regional compilation of a ViT, evaluated with gathered metrics."""
# corpus: mode=training needs=transformers,accelerate tolerance=2e-2

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin, set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import ViTConfig, ViTForImageClassification


def quadrants(count: int) -> TensorDataset:
    labels = torch.arange(count) % 4
    pixels = torch.randn(count, 3, 16, 16)
    for image, label in zip(pixels, labels.tolist(), strict=True):
        image[:, 8 * (label // 2) :, 8 * (label % 2) :] += 2.0
    return TensorDataset(pixels, labels)


def main() -> None:
    set_seed(61)
    plugin = TorchDynamoPlugin(backend="inductor", use_regional_compilation=True)
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", dynamo_plugin=plugin)
    config = ViTConfig(
        image_size=16,
        patch_size=4,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=4,
    )
    model = ViTForImageClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer, train, test = accelerator.prepare(
        model, optimizer, DataLoader(quadrants(64), batch_size=8), DataLoader(quadrants(16), batch_size=8)
    )
    accelerator.print("mixed precision:", accelerator.mixed_precision)

    model.train()
    for step, (pixels, labels) in enumerate(train):
        loss = model(pixel_values=pixels, labels=labels).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(f"step {step}: loss {loss.item():.4g}")

    model.eval()
    scores = []
    for pixels, labels in test:
        with torch.no_grad():
            logits = model(pixel_values=pixels).logits
        guesses, wanted = accelerator.gather_for_metrics((logits.float().softmax(-1), labels))
        scores.append(guesses.gather(1, wanted[:, None]).mean())
    accelerator.print(f"evaluation: probability of the right class {torch.stack(scores).mean().item():.4g}")


if __name__ == "__main__":
    main()
