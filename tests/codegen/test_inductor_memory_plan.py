"""Which inputs of a graph end within it, as Inductor's plan of the memory counts them."""

from typing import Any

import pytest
import torch
from torch import nn

import aotlens


class Gated(nn.Module):
    """`sigmoid` is saved for the backward, and so are `weight` and `x`, which the caller keeps alive."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x @ self.weight
        return hidden.sigmoid() @ self.weight


def test_what_the_caller_keeps_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    memory: Any = pytest.importorskip("torch._inductor.memory")
    ending: list[set[str]] = []
    inputs: list[set[str]] = []
    original = memory.get_freeable_input_buf

    def get(nodes: Any, graph_inputs: Any) -> Any:
        found = original(nodes, graph_inputs)
        inputs.append(set(graph_inputs))
        ending.append(set(found))
        return found

    monkeypatch.setattr(memory, "get_freeable_input_buf", get)
    module, x = Gated(), torch.randn(4, 8, requires_grad=True)
    with torch._inductor.config.patch(force_disable_caches=True):
        aotlens.compile(module)(x).sum().backward()
    forward, backward = ending[0], ending[-1]
    assert forward == set()
    assert {"x", "weight"} <= inputs[-1]
    assert backward == {"sigmoid"}
