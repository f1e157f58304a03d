"""TRL's SFTTrainer with torch_compile=True, on examples held in memory and a word tokenizer made here."""
# corpus: mode=training needs=transformers,trl,datasets

import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    PrinterCallback,
    TrainerCallback,
)
from trl import SFTConfig, SFTTrainer

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven"]
WORDS = ["what", "is", "the", "sum", "of", "and", "it", *NUMBERS]


def word_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<unk>", "<s>", "</s>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def examples() -> Dataset:
    sums = [(a, b) for a in range(1, 6) for b in range(1, 6) if a + b <= 7]
    rows = [
        {
            "prompt": f"what is the sum of {NUMBERS[a - 1]} and {NUMBERS[b - 1]}",
            "completion": f" it is {NUMBERS[a + b - 1]}",
        }
        for a, b in sums
    ]
    return Dataset.from_list(rows)


class PrintLoss(TrainerCallback):
    def on_log(
        self, args: object, state: object, control: object, logs: dict[str, float], **rest: object
    ) -> None:
        if "loss" in logs:
            print(f"step {state.global_step}: loss {float(logs['loss']):.4g}")


def main() -> None:
    torch.manual_seed(65)
    tokenizer = word_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = SFTConfig(
            output_dir=folder,
            torch_compile=True,
            max_steps=8,
            per_device_train_batch_size=4,
            learning_rate=5e-3,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            completion_only_loss=True,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            disable_tqdm=True,
            seed=65,
        )
        trainer = SFTTrainer(
            LlamaForCausalLM(config),
            args=settings,
            train_dataset=examples(),
            processing_class=tokenizer,
            callbacks=[PrintLoss()],
        )
        trainer.remove_callback(PrinterCallback)
        print("fine-tuning on", len(examples()), "sums")
        trainer.train()


if __name__ == "__main__":
    main()
