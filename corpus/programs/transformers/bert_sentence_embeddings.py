"""Sentence embeddings of BERT: mean pooling over sentences of many lengths, with dynamic shapes."""
# corpus: mode=inference needs=transformers

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertConfig, BertModel


class SentenceEncoder(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(states.dtype)
        return F.normalize((states * weights).sum(1) / weights.sum(1).clamp(min=1e-6), dim=-1)


def sentences(count: int, longest: int) -> tuple[Tensor, Tensor]:
    ids = torch.randint(1, 500, (count, longest))
    lengths = torch.linspace(2, longest, count).long()
    mask = (torch.arange(longest) < lengths[:, None]).long()
    return ids * mask, mask


def main() -> None:
    torch.manual_seed(21)
    config = BertConfig(
        vocab_size=500,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        position_embedding_type="absolute",
    )
    encoder = torch.compile(SentenceEncoder(config).eval(), dynamic=True)
    print("encoder compiled with dynamic=True")
    with torch.inference_mode():
        for step, (count, longest) in enumerate(
            [(4, 12), (6, 20), (3, 31), (8, 7), (5, 5), (4, 12), (9, 40), (2, 17)]
        ):
            embedded = encoder(*sentences(count, longest))
            similar = embedded @ embedded.T
            off = similar[~torch.eye(count, dtype=torch.bool)]
            first = embedded[0, 0].item()
            print(f"batch {step}: {count} sentences, similarity {off.mean().item():.4g}, first {first:.4g}")


main()
