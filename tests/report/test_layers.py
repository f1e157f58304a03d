"""Which layer a value belongs to, and that the lists of a model with equal layers fold over them."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from aotlens.compiled import Compiled
from aotlens.ir.layers import Layers
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.render.text.activations import saved_folds
from aotlens.view.fold import alive_folds, total_bytes


class Scale(nn.Module):
    """Reads its parameter last, as a root-mean-square norm does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * self.weight


class Block(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = Scale(width), nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        y = x.tanh()  # before any parameter of the block is read
        return x + self.down(self.up(self.norm(y)).sin())


class Stack(nn.Module):
    def __init__(self, *inner: int) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(Block(8, size) for size in inner)
        self.last = Scale(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).cos()
        for block in self.blocks:
            x = block(x)
        return self.last(x).sum()


def compiled(*inner: int) -> Compiled:
    return compile_direct(Stack(*inner), (torch.randn(4, 8),), {}, CompileOptions(backend="eager"))


def test_each_operator_has_its_layer() -> None:
    found = compiled(16, 16, 16)
    layers, nodes = Layers(found.joint.program), found.joint.program.nodes
    tanh = [layers.layer_of(node) for node in nodes if node.target == "aten.tanh.default"]
    assert tanh == ["blocks.0", "blocks.1", "blocks.2"]
    powers = [layers.layer_of(node) for node in nodes if "pow" in node.target and not node.origin.backward]
    assert powers == ["blocks.0", "blocks.1", "blocks.2", None]
    assert next(layers.layer_of(node) for node in nodes if node.target == "aten.cos.default") is None
    both = Counter(layers.layer_of(node) for node in nodes if node.op is not None and node.origin.backward)
    assert both["blocks.0"] == both["blocks.1"] == both["blocks.2"]


def test_saved_values_and_the_peak_fold_over_layers() -> None:
    target = compiled(16, 16, 16, 32).target()
    assert target.partition is not None
    assert target.memory is not None
    layers = {value.layer for value in target.partition.saved if value.bytes}
    assert layers >= {"blocks.0", "blocks.1", "blocks.2", "blocks.3"}
    folds = alive_folds(target.memory)
    assert sum(map(total_bytes, folds)) == target.memory.peak_bytes
    rows = saved_folds([value for value in target.partition.saved if value.bytes])
    wide = [(group.label, group.times) for group in rows if group.label.endswith("self.up(self.norm(y))")]
    text = "addmm in self.up(self.norm(y))"
    assert wide == [(f"blocks.0–2: {text}", "×3"), (f"blocks.3: {text}", "")]


class Between(nn.Module):
    """Works on values of its own between two numbered layers of one forward."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.bottom(x).cos()
        chosen = hidden[:, torch.tensor([0, 2, 4, 6])]
        return self.top(chosen.sin()).sum()


def between() -> Compiled:
    return compile_direct(Between(), (torch.randn(4, 8),), {}, CompileOptions(backend="inductor"))


@pytest.mark.rotates
def test_between_two_layers_of_one_forward_is_neither() -> None:
    found = between()
    assert found.joint.before_passes is not None  # the passes changed the program
    layers, nodes = Layers(found.joint.program), found.joint.before_passes.nodes
    of = {
        node.target: layers.layer_of(node)
        for node in nodes
        if node.op is not None and not node.origin.backward
    }
    assert of["aten.cos.default"] == "bottom.0"  # around the layer's call
    assert of["aten.index.Tensor"] is None
    assert of["aten.sin.default"] is None


def test_constants_of_a_pass_belong_to_their_readers() -> None:
    found = between()
    assert found.parts.backward is not None  # it is trained
    layers, backward = Layers(found.parts.joint.program), found.parts.backward.nodes
    constants = [node for node in backward if node.target == "aten.full.default"]
    assert [layers.layer_of(node) for node in constants] == ["top.0", None, "bottom.0"]
