"""Dropout between the layers of `nn.LSTM`, `nn.GRU` and `nn.RNN` under symbolic sizes.

torch takes these layers apart in Python there, and its own loop over them never drops anything
(`_rnn_helper` of torch 2.11 to 2.15): here the loop stands around it, one layer at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from aotlens.torch_api.operators import decompositions_module


@contextmanager
def dropout_between_layers() -> Iterator[None]:
    """Within the block, recurrent layers that are taken apart drop what eager drops."""
    module = decompositions_module()
    before = module._rnn_helper

    def layers(given: Tensor, hidden: Any, weights: Any, *options: Any) -> tuple[Tensor, list[Any]]:
        has_biases, count, rate, train, bidirectional, batch_first, layer = options
        if not (rate and train and count > 1):
            result: tuple[Tensor, list[Any]] = before(given, hidden, weights, *options)
            return result
        directions, last = 2 if bidirectional else 1, []
        given = given.transpose(0, 1) if batch_first else given
        for index in range(count):
            own = slice(index * directions, (index + 1) * directions)
            given = given if index == 0 else torch.dropout(given, rate, True)
            one = (has_biases, 1, 0.0, train, bidirectional, False, layer)
            given, states = before(given, hidden[own], weights[own], *one)
            last += states
        return (given.transpose(0, 1) if batch_first else given), last

    module._rnn_helper = layers
    try:
        yield
    finally:
        module._rnn_helper = before
