"""Per-sample gradients with vmap(grad(...)), clipped one by one as in differentially private training."""
# corpus: mode=training steps=10

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4)
)
images = torch.randn(24, 1, 14, 14)
labels = torch.randint(0, 4, (24,))
params = {name: parameter.detach() for name, parameter in model.named_parameters()}


def sample_loss(params, image, label):
    logits = functional_call(model, params, (image.unsqueeze(0),))
    return nn.functional.cross_entropy(logits, label.unsqueeze(0))


@torch.compile
def private_gradients(params, images, labels, max_norm: float):
    gradients, losses = vmap(grad_and_value(sample_loss), in_dims=(None, 0, 0))(params, images, labels)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    factor = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    clipped = {name: torch.einsum("n,n...->...", factor, g) / len(g) for name, g in gradients.items()}
    return clipped, losses.mean(), norms


print("ready")
for step in range(10):
    gradients, loss, norms = private_gradients(params, images, labels, 1.0)
    with torch.no_grad():
        for name, gradient in gradients.items():
            params[name] = params[name] - 0.5 * gradient
    print(f"step {step}: loss {loss.item():.4g} largest norm {norms.max().item():.4g}")
