"""Mamba trained on a copying task: a selective state space in plain PyTorch, compiled as a whole."""
# corpus: mode=training needs=transformers

import torch
from transformers import MambaConfig, MambaForCausalLM


def copying(batch: int, memory: int, gap: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Symbols, a gap, then the same symbols; only the repetition counts."""
    symbols = torch.randint(2, 18, (batch, memory))
    blank = torch.ones(batch, gap, dtype=torch.long)
    tokens = torch.cat([symbols, blank, symbols], 1)
    labels = tokens.clone()
    labels[:, : memory + gap] = -100
    return tokens, labels


def main() -> None:
    torch.manual_seed(47)
    config = MambaConfig(
        vocab_size=20,
        hidden_size=32,
        state_size=8,
        num_hidden_layers=2,
        conv_kernel=4,
        expand=2,
        time_step_rank=4,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = MambaForCausalLM(config).train()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    print("Mamba with a state of", config.state_size)
    for step in range(8):
        tokens, labels = copying(4, 5, 4)
        loss = compiled(input_ids=tokens, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
