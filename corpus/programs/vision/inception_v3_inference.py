"""Embed images with torchvision's Inception v3 and compare two sets by Fréchet distance."""
# corpus: mode=inference needs=torchvision

import torch
from torchvision.models import Inception3
from torchvision.models.feature_extraction import create_feature_extractor


def statistics(features):
    mean = features.mean(dim=0)
    centred = features - mean
    return mean, centred.T @ centred / (len(features) - 1)


def frechet_distance(first, second):
    """Distance of two Gaussians with the covariances' square roots from eigenvalues."""
    (mean_1, cov_1), (mean_2, cov_2) = first, second
    eigenvalues = torch.linalg.eigvals(cov_1.double() @ cov_2.double()).real.clamp(min=0)
    return (mean_1 - mean_2).square().sum() + cov_1.trace() + cov_2.trace() - 2 * eigenvalues.sqrt().sum()


torch.manual_seed(0)
model = Inception3(num_classes=10, aux_logits=False, transform_input=True, init_weights=False)
for module in model.modules():  # running statistics of the random weights
    if isinstance(module, torch.nn.BatchNorm2d):
        module.momentum = None
with torch.no_grad():
    for _ in range(2):
        model(torch.rand(4, 3, 96, 96))
extractor = create_feature_extractor(model.eval(), {"Mixed_5d": "features"})
embed = torch.compile(extractor)
print("extracts", list(dict(extractor.named_children()))[-1])

generator = torch.Generator().manual_seed(1)
with torch.inference_mode():
    reference = None
    for index in range(8):
        images = torch.rand(4, 3, 96, 96, generator=generator) * (1 + 0.1 * index)
        features = embed(images)["features"].mean(dim=(2, 3))[:, :16]
        reference = statistics(features) if reference is None else reference
        distance = frechet_distance(reference, statistics(features))
        print(f"set {index}: mean {features.mean().item():.4g}, distance {distance.item():.2f}")
