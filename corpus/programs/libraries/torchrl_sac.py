"""Train torchrl's SAC loss: several networks, an ensemble by vmap and a learnt temperature."""
# corpus: mode=training needs=torchrl,tensordict

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.data import Bounded
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate

torch.manual_seed(0)
OBSERVATION, ACTION = 4, 2


def actor_network():
    mlp = MLP(in_features=OBSERVATION, out_features=2 * ACTION, num_cells=[24], activation_class=nn.ReLU)
    module = TensorDictModule(nn.Sequential(mlp, NormalParamExtractor()), ["observation"], ["loc", "scale"])
    spec = Bounded(low=-torch.ones(ACTION), high=torch.ones(ACTION), shape=(ACTION,))
    return ProbabilisticActor(module, ["loc", "scale"], spec=spec, distribution_class=TanhNormal)


def batch_of(size):
    state, action = torch.randn(size, OBSERVATION), torch.rand(size, ACTION) * 2 - 1
    following = state.clone()
    following[:, :ACTION] += 0.1 * action
    reward = -following.square().sum(-1, keepdim=True)
    done = torch.zeros(size, 1, dtype=torch.bool)
    after = {"observation": following, "reward": reward, "done": done, "terminated": done.clone()}
    return TensorDict({"observation": state, "action": action, "next": after}, batch_size=[size])


critic = MLP(in_features=OBSERVATION + ACTION, out_features=1, num_cells=[24])
qvalue = ValueOperator(critic, ["observation", "action"], ["state_action_value"])
loss_module = SACLoss(
    actor_network(), qvalue, num_qvalue_nets=2, loss_function="smooth_l1", delay_qvalue=True
)
loss_module.make_value_estimator(gamma=0.97)
target_update = SoftUpdate(loss_module, tau=0.05)
optimizer = torch.optim.Adam(loss_module.parameters(), lr=2e-3)
compiled = torch.compile(loss_module)
print("parameters:", sum(p.numel() for p in loss_module.parameters()))

for step in range(8):
    losses = compiled(batch_of(16))
    total = losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    target_update.step()
    print(f"step {step}: q {losses['loss_qvalue'].item():.4g}, actor {losses['loss_actor'].item():.4g}")
