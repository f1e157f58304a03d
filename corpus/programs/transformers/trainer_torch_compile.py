"""`Trainer` with torch_compile=True: a small classifier, evaluation at the end, metrics computed."""
# corpus: mode=training needs=transformers,accelerate

import tempfile

import numpy
import torch
from torch.utils.data import Dataset
from transformers import (
    EvalPrediction,
    PrinterCallback,
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Parity(Dataset):
    """Sequences labelled by whether the marker occurs an even number of times."""

    def __init__(self, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(4, 40, (count, 12), generator=draw)
        self.labels = (self.ids == 7).sum(1) % 2

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": self.labels[index]}


class PrintLoss(TrainerCallback):
    def on_log(
        self, args: object, state: object, control: object, logs: dict[str, float], **rest: object
    ) -> None:
        if "loss" in logs:
            print(f"step {state.global_step}: loss {float(logs['loss']):.4g}")


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float(numpy.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


def main() -> None:
    set_seed(51)
    config = RobertaConfig(
        vocab_size=48,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=20,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = RobertaForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            torch_compile=True,
            max_steps=8,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=8,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            warmup_steps=2,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=51,
        )
        trainer = Trainer(
            model,
            arguments,
            train_dataset=Parity(64, 1),
            eval_dataset=Parity(16, 2),
            compute_metrics=accuracy,
            callbacks=[PrintLoss()],
        )
        trainer.remove_callback(PrinterCallback)
        print("training with Trainer")
        trainer.train()
        measured = trainer.evaluate()
    print(f"evaluation: loss {measured['eval_loss']:.4g}, accuracy {measured['eval_accuracy']:.4g}")


if __name__ == "__main__":
    main()
