"""The models that are measured: the GPT of the examples at any depth."""

import torch
from torch import Tensor, nn

from examples.train_gpt import GPT, Config

CONTEXT, WIDTH, BATCH, VOCABULARY = 128, 64, 2, 512
"""Small tensors: compilers see the graph's size, and the model's own step should add little."""


def gpt(layers: int) -> GPT:
    """A decoder in training mode; dropout is 0 so that every contender computes the same."""
    torch.manual_seed(0)
    model = GPT(Config(VOCABULARY, context=CONTEXT, layers=layers, width=WIDTH, dropout=0.0))
    # functorch.compile.aot_module refuses tied weights.
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())
    return model


def gpt_inputs() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
