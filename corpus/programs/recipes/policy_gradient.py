"""Reinforcement learning: a compiled actor-critic plays a grid world in eager steps and learns by PPO."""
# corpus: mode=training steps=8 tolerance=1e-2

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


class GridWorld:
    """Several agents walk on a 5 by 5 board towards a goal."""

    def __init__(self, agents):
        self.position = torch.zeros(agents, 2, dtype=torch.long)
        self.moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def observation(self):
        return F.one_hot(self.position[:, 0] * 5 + self.position[:, 1], 25).float()

    def step(self, action):
        self.position = (self.position + self.moves[action]).clamp(0, 4)
        done = (self.position == 4).all(1)
        reward = torch.where(done, 1.0, -0.05)
        self.position = torch.where(done[:, None], 0, self.position)
        return reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(25, 32), nn.Tanh())
        self.policy, self.value = nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, observation):
        h = self.body(observation)
        return self.policy(h), self.value(h).squeeze(-1)


@torch.compile
def ppo_loss(model, observations, actions, old_log_probs, advantages, returns):
    logits, values = model(observations)
    distribution = Categorical(logits=logits, validate_args=False)
    ratio = (distribution.log_prob(actions) - old_log_probs).exp()
    clipped = ratio.clamp(0.8, 1.2)
    policy_loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
    return policy_loss + 0.5 * F.mse_loss(values, returns) - 0.01 * distribution.entropy().mean()


def returns_of(rewards, dones, last, gamma=0.97):
    result = []
    for reward, done in zip(reversed(rewards), reversed(dones)):
        last = reward + gamma * last * (1 - done)
        result.insert(0, last)
    return torch.stack(result)


def main():
    torch.manual_seed(0)
    world, model = GridWorld(8), ActorCritic()
    act = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    print("ready")
    for iteration in range(8):
        observations, actions, log_probs, rewards, dones, values = [], [], [], [], [], []
        with torch.no_grad():
            for _ in range(16):
                observations.append(world.observation())
                logits, value = act(observations[-1])
                # Deterministic exploration, so that a rounding error does not change the path.
                action = (logits.argmax(-1) + (torch.rand(8) < 0.5) * torch.randint(1, 4, (8,))) % 4
                actions.append(action)
                log_probs.append(logits.log_softmax(-1).gather(-1, action[:, None]).squeeze(-1))
                values.append(value)
                reward, done = world.step(action)
                rewards.append(reward)
                dones.append(done)
            returns = returns_of(rewards, dones, act(world.observation())[1])
        data = [torch.cat(part) for part in (observations, actions, log_probs)]
        advantages = (returns - torch.stack(values)).flatten()
        for _ in range(3):
            loss = ppo_loss(model, *data, advantages, returns.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(
            f"iteration {iteration}: loss {loss.item():.3g} reward {torch.stack(rewards).mean().item():.3g}"
        )


if __name__ == "__main__":
    main()
