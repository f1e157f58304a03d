"""Act with a tensordict policy pipeline (normalise, encode, head, value) compiled for inference."""
# corpus: mode=inference needs=torchrl,tensordict

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.modules import MLP, ConvNet, ValueOperator

torch.manual_seed(0)
encoder = ConvNet(in_features=3, num_cells=[8, 16], kernel_sizes=3, strides=2, paddings=1)
policy = TensorDictSequential(
    TensorDictModule(lambda pixels: pixels.float() / 255 - 0.5, ["pixels"], ["scaled"]),
    TensorDictModule(encoder, ["scaled"], ["features"]),
    TensorDictModule(
        MLP(in_features=256, out_features=4, num_cells=[32], activation_class=nn.SiLU),
        ["features"],
        ["logits"],
    ),
    TensorDictModule(lambda logits: logits.argmax(dim=-1), ["logits"], ["action"]),
    ValueOperator(MLP(in_features=256, out_features=1, num_cells=[16]), ["features"]),
)
act = torch.compile(policy)
print("outputs:", ", ".join(policy.out_keys))

pixels = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
with torch.no_grad():
    for step in range(8):
        data = act(TensorDict({"pixels": pixels}, batch_size=[2]))
        shift = int(data["action"][0]) + 1
        pixels = pixels.roll(shift, dims=-1) + step
        value = data["state_value"]
        print(f"step {step}: actions {data['action'].tolist()}, value {value.mean().item():.4g}")
