"""Forward-mode and mixed derivatives under torch.compile: jvp, jacrev, hessian and a Newton step."""
# corpus: mode=training steps=8

import torch
from torch.func import grad, hessian, jacrev, jvp, vmap

torch.manual_seed(0)
design = torch.randn(40, 4, dtype=torch.float64)
truth = torch.tensor([0.5, -1.0, 2.0, 0.25], dtype=torch.float64)
labels = (torch.sigmoid(design @ truth) > 0.5).double()


def negative_log_likelihood(weights):
    logits = design @ weights
    return torch.nn.functional.softplus(logits).sub(labels * logits).mean() + 0.01 * weights.square().sum()


@torch.compile
def newton_step(weights):
    gradient = grad(negative_log_likelihood)(weights)
    curvature = hessian(negative_log_likelihood)(weights)
    return weights - torch.linalg.solve(curvature, gradient), negative_log_likelihood(weights)


@torch.compile
def divergence(points):
    """The divergence of a vector field at each point, from its Jacobian."""

    def field(p):
        return torch.stack([p[0] * p[1], torch.sin(p[1]) + p[2], p[2] ** 2 - p[0]])

    return vmap(lambda p: torch.trace(jacrev(field)(p)))(points)


@torch.compile
def directional(weights, direction):
    return jvp(negative_log_likelihood, (weights,), (direction,))


weights = torch.zeros(4, dtype=torch.float64)
points = torch.randn(16, 3, dtype=torch.float64)
print("ready")
for step in range(8):
    weights, loss = newton_step(weights)
    value, slope = directional(weights, torch.ones_like(weights))
    total = divergence(points + step).sum()
    print(f"step {step}: loss {loss:.4g} slope {slope + 1:.4g} value {value:.4g} divergence {total:.4g}")
