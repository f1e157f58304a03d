"""TRL's DPOTrainer on preference pairs held in memory; the policy and its frozen reference are compiled."""
# corpus: mode=training needs=transformers,trl,datasets

import copy
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    PrinterCallback,
    Qwen2Config,
    Qwen2ForCausalLM,
    TrainerCallback,
)
from trl import DPOConfig, DPOTrainer


def tokenizer_of(words: list[str]) -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<unk>", "</s>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="</s>"
    )


def preferences(subjects: list[str]) -> Dataset:
    """Polite answers are preferred; some are longer than others."""
    rows = []
    for index, subject in enumerate(subjects * 4):
        thanks = " please" * (1 + index % 3)
        rows.append({"prompt": f"tell me of {subject}", "chosen": f" yes{thanks}", "rejected": " no never"})
    return Dataset.from_list(rows)


class PrintLoss(TrainerCallback):
    def on_log(
        self, args: object, state: object, control: object, logs: dict[str, float], **rest: object
    ) -> None:
        if "loss" in logs:
            margin = float(logs["rewards/margins"])
            print(f"step {state.global_step}: loss {float(logs['loss']):.4g}, margin {margin:.3g}")


def main() -> None:
    torch.manual_seed(66)
    subjects = ["rivers", "stars", "trees", "birds", "stones", "clouds"]
    tokenizer = tokenizer_of(["tell", "me", "of", "yes", "no", "never", "please", *subjects])
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    policy = Qwen2ForCausalLM(config)
    reference = copy.deepcopy(policy)
    policy.compile()
    reference.compile()
    with tempfile.TemporaryDirectory() as folder:
        settings = DPOConfig(
            output_dir=folder,
            beta=0.5,
            max_steps=8,
            per_device_train_batch_size=4,
            learning_rate=2e-3,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            disable_tqdm=True,
            seed=66,
        )
        trainer = DPOTrainer(
            policy,
            reference,
            args=settings,
            train_dataset=preferences(subjects),
            processing_class=tokenizer,
            callbacks=[PrintLoss()],
        )
        trainer.remove_callback(PrinterCallback)
        print("preferences over", len(subjects), "subjects")
        trainer.train()


if __name__ == "__main__":
    main()
