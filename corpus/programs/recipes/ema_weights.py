"""An exponential moving average of the weights (AveragedModel), evaluated beside the compiled model."""
# corpus: mode=training steps=10

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn


def make_model():
    return nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))


torch.manual_seed(0)
model = make_model()
ema_model = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
compiled = torch.compile(model)
compiled_ema = torch.compile(ema_model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

x = torch.randn(160, 10)
y = (x[:, :2].prod(1) + x[:, 2]).unsqueeze(1)
print("ready")

for step in range(9):
    compiled.train()
    batch = torch.arange(step * 16, step * 16 + 16) % 160
    loss = nn.functional.huber_loss(compiled(x[batch]), y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema_model.update_parameters(model)

    compiled.eval()
    compiled_ema.eval()
    with torch.no_grad():
        plain = nn.functional.huber_loss(compiled(x), y)
        averaged = nn.functional.huber_loss(compiled_ema(x), y)
    print(f"step {step}: loss {loss.item():.4g} evaluation {plain.item():.4g} averaged {averaged.item():.4g}")

update_bn([x[:80], x[80:]], ema_model)
with torch.no_grad():
    print(f"final {nn.functional.huber_loss(ema_model.eval()(x), y).item():.4g}")
