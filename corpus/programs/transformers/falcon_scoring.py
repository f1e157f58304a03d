"""Falcon with multi-query attention and parallel blocks scores candidate answers by their log-likelihood."""
# corpus: mode=inference needs=transformers

import torch
from transformers import FalconConfig, FalconForCausalLM


@torch.no_grad()
def log_likelihood(model: torch.nn.Module, context: list[int], answers: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, answers))
    rows = torch.zeros(len(answers), len(context) + longest, dtype=torch.long)
    mask = torch.zeros_like(rows)
    for row, answer in enumerate(answers):
        text = context + answer
        rows[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = 1
    logits = model(input_ids=rows, attention_mask=mask, use_cache=False).logits.log_softmax(-1)
    chosen = logits[:, :-1].gather(-1, rows[:, 1:, None]).squeeze(-1) * mask[:, 1:]
    return chosen[:, len(context) - 1 :].sum(-1)


def main() -> None:
    torch.manual_seed(11)
    config = FalconConfig(
        vocab_size=300,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        multi_query=True,
        parallel_attn=True,
        new_decoder_architecture=False,
        alibi=False,
        bias=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    model = torch.compile(FalconForCausalLM(config).eval())
    print("candidates are scored by a compiled Falcon")
    draw = torch.Generator().manual_seed(11)
    for question in range(8):
        context = torch.randint(0, 300, (6 + question % 3,), generator=draw).tolist()
        answers = [torch.randint(0, 300, (n,), generator=draw).tolist() for n in (2, 3, 4)]
        scores = log_likelihood(model, context, answers)
        print(
            f"question {question}: best {scores.argmax().item()}, "
            + ", ".join(f"{s:.4g}" for s in scores.tolist())
        )


main()
