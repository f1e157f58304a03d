"""Accelerate with a dynamo plugin: gradients accumulated, clipped and scheduled by the Accelerator."""
# corpus: mode=training needs=transformers,accelerate

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin, set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    set_seed(60)
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=2,
        dynamo_plugin=TorchDynamoPlugin(backend="inductor", mode="default"),
    )
    config = GPT2Config(
        vocab_size=64,
        n_positions=32,
        n_embd=48,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config)
    data = DataLoader(TensorDataset(torch.randint(0, 20, (64, 24))), batch_size=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    model.train()
    print(
        f"{len(data)} micro-batches, dynamo backend {accelerator.state.dynamo_plugin.backend.value.lower()}"
    )

    for step, (tokens,) in enumerate(data):
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        kind = "update" if accelerator.sync_gradients else "accumulate"
        print(f"micro-batch {step}: {kind}, loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
