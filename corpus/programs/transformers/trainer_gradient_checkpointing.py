"""`Trainer` with torch_compile, gradient checkpointing and accumulation on a causal language model."""
# corpus: mode=training needs=transformers,accelerate

import tempfile

import torch
from transformers import (
    MistralConfig,
    MistralForCausalLM,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class PrintLoss(TrainerCallback):
    def on_log(
        self, args: object, state: object, control: object, logs: dict[str, float], **rest: object
    ) -> None:
        if "loss" in logs:
            norm = float(logs["grad_norm"])
            print(f"step {state.global_step}: loss {float(logs['loss']):.4g}, gradient norm {norm:.4g}")


def rows(count: int) -> list[dict[str, list[int]]]:
    draw = torch.Generator().manual_seed(52)
    tokens = torch.randint(0, 30, (count, 20), generator=draw).tolist()
    return [{"input_ids": row, "labels": row} for row in tokens]


def collate(batch: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    return {key: torch.tensor([row[key] for row in batch]) for key in batch[0]}


def main() -> None:
    set_seed(52)
    config = MistralConfig(
        vocab_size=64,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=None,
        use_cache=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            torch_compile=True,
            torch_compile_backend="inductor",
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            gradient_accumulation_steps=2,
            max_steps=8,
            per_device_train_batch_size=4,
            learning_rate=2e-3,
            optim="adamw_torch_fused",
            max_grad_norm=1.0,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=52,
        )
        trainer = Trainer(
            MistralForCausalLM(config),
            arguments,
            train_dataset=rows(64),
            data_collator=collate,
            callbacks=[PrintLoss()],
        )
        trainer.remove_callback(PrinterCallback)
        print("Trainer with gradient checkpointing")
        trainer.train()


if __name__ == "__main__":
    main()
