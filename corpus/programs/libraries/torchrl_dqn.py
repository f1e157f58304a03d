"""Train torchrl's double DQN loss from a replay buffer, backward pass inside the compiled function."""
# corpus: mode=training needs=torchrl,tensordict

import logging

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, OneHot, TensorDictReplayBuffer
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

logging.getLogger("torchrl").setLevel(logging.WARNING)
STATES, ACTIONS = 5, 3


def transitions(count, generator):
    """A walk on a line: action 2 goes right, 0 left, the right end pays."""
    position = torch.randint(0, STATES, (count,), generator=generator)
    action = torch.randint(0, ACTIONS, (count,), generator=generator)
    following = (position + action - 1).clamp(0, STATES - 1)
    done = (following == STATES - 1).unsqueeze(-1)
    encode = torch.nn.functional.one_hot
    return TensorDict(
        {
            "observation": encode(position, STATES).float(),
            "action": encode(action, ACTIONS),
            "next": {
                "observation": encode(following, STATES).float(),
                "reward": done.float(),
                "done": done,
                "terminated": done.clone(),
            },
        },
        batch_size=[count],
    )


def main():
    torch.manual_seed(0)
    network = MLP(in_features=STATES, out_features=ACTIONS, num_cells=[32, 32], activation_class=torch.nn.ELU)
    actor = QValueActor(network, in_keys=["observation"], spec=OneHot(ACTIONS))
    loss_module = DQNLoss(actor, action_space="one-hot", delay_value=True, double_dqn=True)
    loss_module.make_value_estimator(gamma=0.9)
    target_update = SoftUpdate(loss_module, eps=0.9)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=1e-2)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(256), batch_size=32)
    generator = torch.Generator().manual_seed(1)
    buffer.extend(transitions(128, generator))

    def update(batch):
        loss = loss_module(batch)["loss"]
        loss.backward()
        return loss.detach()

    compiled = torch.compile(update)
    print("stored transitions:", len(buffer))
    for step in range(10):
        loss = compiled(buffer.sample())
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        target_update.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
