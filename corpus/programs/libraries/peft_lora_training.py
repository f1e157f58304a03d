"""LoRA on the attention of a Llama, trained with PEFT while the base stays frozen, then saved and loaded."""
# corpus: mode=training needs=transformers,peft

import tempfile

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def base() -> LlamaForCausalLM:
    torch.manual_seed(62)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def main() -> None:
    adapter = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=4,
        lora_alpha=8,
        lora_dropout=0.0,
        target_modules=["q_proj", "v_proj", "gate_proj"],
        modules_to_save=["lm_head"],
    )
    model = get_peft_model(base(), adapter)
    trained, total = model.get_nb_trainable_parameters()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    print(f"{trained} of {total} parameters are trained")

    tokens = torch.randint(0, 128, (4, 16))
    model.train()
    for step in range(8):
        loss = compiled(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}")

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = PeftModel.from_pretrained(base(), folder).eval()
    with torch.no_grad():
        again = torch.compile(loaded)(input_ids=tokens, labels=tokens).loss
    print(f"loaded: loss {again.item():.4g}")


if __name__ == "__main__":
    main()
