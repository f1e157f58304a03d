"""Train a Gaussian policy with torchrl's clipped PPO loss and GAE on a made-up rollout."""
# corpus: mode=training needs=torchrl,tensordict tolerance=5e-2

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

OBSERVATION, ACTION = 6, 2


def build_actor():
    network = nn.Sequential(
        nn.Linear(OBSERVATION, 32), nn.Tanh(), nn.Linear(32, 2 * ACTION), NormalParamExtractor()
    )
    module = TensorDictModule(network, in_keys=["observation"], out_keys=["loc", "scale"])
    return ProbabilisticActor(
        module, in_keys=["loc", "scale"], distribution_class=TanhNormal, return_log_prob=True, safe=False
    )


def rollout(actor, batch, steps):
    """A point that actions push towards the origin."""
    state = torch.randn(batch, OBSERVATION)
    transitions = []
    for _ in range(steps):
        data = TensorDict({"observation": state}, batch_size=[batch])
        with torch.no_grad():
            actor(data)
        following = 0.9 * state
        following[:, :ACTION] += 0.3 * data["action"]
        reward = -following.square().sum(dim=-1, keepdim=True)
        done = torch.zeros(batch, 1, dtype=torch.bool)
        next_data = {"observation": following, "reward": reward, "done": done, "terminated": done.clone()}
        data["next"] = TensorDict(next_data, batch_size=[batch])
        transitions.append(data)
        state = following
    return torch.stack(transitions, dim=1)


def main():
    torch.manual_seed(0)
    actor = build_actor()
    critic = ValueOperator(
        nn.Sequential(nn.Linear(OBSERVATION, 32), nn.Tanh(), nn.Linear(32, 1)), ["observation"]
    )
    advantage = GAE(gamma=0.98, lmbda=0.95, value_network=critic, average_gae=True)
    loss_module = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_bonus=False)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=3e-3)

    def losses_of(data):
        losses = loss_module(data)
        return losses["loss_objective"] + losses["loss_critic"], losses["loss_critic"].detach()

    compiled = torch.compile(losses_of)
    print("parameters:", sum(p.numel() for p in loss_module.parameters()))
    for step in range(8):
        data = rollout(actor, batch=4, steps=8)
        with torch.no_grad():
            advantage(data)
        flat = data.reshape(-1)
        for part in flat.split(16):
            loss, critic_loss = compiled(part)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(loss_module.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}, critic {critic_loss.item():.4g}")


if __name__ == "__main__":
    main()
