"""Gemma 3 text model: local and global layers with two rotary bases, distilled from a wider teacher."""
# corpus: mode=training needs=transformers

import torch
import torch.nn.functional as F
from transformers import Gemma3ForCausalLM, Gemma3TextConfig


def gemma(width: int, layers: int) -> Gemma3ForCausalLM:
    config = Gemma3TextConfig(
        vocab_size=128,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"] * (layers // 2),
        attention_dropout=0.0,
    )
    return Gemma3ForCausalLM(config)


torch.manual_seed(9)
teacher = gemma(64, 4).eval().requires_grad_(False)
student = gemma(48, 2).train()
run_teacher = torch.compile(teacher)
run_student = torch.compile(student)
optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
print(f"teacher {teacher.num_parameters()}, student {student.num_parameters()} parameters")

temperature = 2.0
for step in range(8):
    tokens = torch.randint(0, 128, (2, 24))
    with torch.no_grad():
        wanted = run_teacher(input_ids=tokens, use_cache=False).logits / temperature
    out = run_student(input_ids=tokens, labels=tokens, use_cache=False)
    soft = F.kl_div(
        F.log_softmax(out.logits / temperature, -1),
        F.log_softmax(wanted, -1),
        log_target=True,
        reduction="batchmean",
    )
    loss = 0.5 * out.loss + 0.5 * temperature**2 * soft / tokens.shape[1]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4g}, divergence {soft.item():.4g}")
