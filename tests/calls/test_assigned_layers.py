"""Parameters, buffers and layers that a call assigns to layers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from tests.calls.test_side_effects import EAGER


def test_what_a_layer_of_torchs_is_given_is_checked_at_each_call() -> None:
    layer: Any = nn.Linear(3, 3)
    layer.scale, layer.shift = 2.0, torch.ones(3)
    compiled = aotlens.compile(lambda x: x * layer.scale + layer.shift, options=EAGER)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 3.0))
    layer.scale = 3.0
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 4.0))
    layer.shift = torch.zeros(3)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 3.0))


class GivesToLayers(nn.Module):
    """One way of many to give tensors to a layer: by its own code, or by that of the one above."""

    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer: Any = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3, bias=False)
        self.tied.weight = self.layer.weight


class BufferAtEachCall(GivesToLayers):
    def forward(self, x: Tensor) -> Any:
        self.register_buffer("last", x.detach().mean(0))
        return self.layer(x) + self.last


class BufferOfTheFirstCall(GivesToLayers):
    def forward(self, x: Tensor) -> Any:
        if not hasattr(self.layer, "mean"):
            self.layer.register_buffer("mean", torch.zeros(3), persistent=False)
        self.layer.mean.mul_(0.9).add_(x.detach().mean(0))
        return self.layer(x) + self.layer.mean


class ParameterOfTheFirstCall(GivesToLayers):
    def forward(self, x: Tensor) -> Any:
        if not hasattr(self.layer, "scale"):
            self.layer.scale = nn.Parameter(torch.full((3,), 2.0))
        return self.layer(x) * self.layer.scale


class WeightAtEachCall(GivesToLayers):
    def forward(self, x: Tensor) -> Any:
        self.layer.bias = nn.Parameter(self.layer.bias.detach() * 0.5)
        return self.layer(x)


class OneOfTwoTied(GivesToLayers):
    def forward(self, x: Tensor) -> Any:
        self.tied.weight = nn.Parameter(self.layer.weight.detach() * 2)
        return self.layer(self.tied(x))


GIVING = [BufferAtEachCall, BufferOfTheFirstCall, ParameterOfTheFirstCall, WeightAtEachCall, OneOfTwoTied]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", GIVING)
def test_parameters_and_buffers_that_a_call_gives_to_layers(kind: type[GivesToLayers], dynamic: bool) -> None:
    torch.manual_seed(0)
    eager, module = kind(), kind()
    module.load_state_dict(eager.state_dict())
    compiled = aotlens.compile(module, options=CompileOptions(backend="eager", dynamic=dynamic))
    for rows in (2, 4, 4):
        x = torch.randn(rows, 3)
        results = [call(x) for call in (eager, compiled)]
        torch.testing.assert_close(results[1], results[0])
        for result in results:
            result.sum().backward()
        for listed in (nn.Module.named_parameters, nn.Module.named_buffers):
            before, now = (dict(listed(one, remove_duplicate=False)) for one in (eager, module))
            torch.testing.assert_close(now, before)
            gradients = [{name: one.grad for name, one in found.items()} for found in (before, now)]
            assert [type(one) for one in now.values()] == [type(one) for one in before.values()]
            torch.testing.assert_close(gradients[1], gradients[0])
        assert [name for name in vars(module.layer) if name not in vars(eager.layer)] == []
        assert module.state_dict().keys() == eager.state_dict().keys()


def test_a_layer_that_a_call_makes_is_refused() -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleDict()

        def forward(self, x: Tensor) -> Any:
            if "first" not in self.heads:
                self.heads["first"] = nn.Linear(3, 2)
            return self.heads["first"](x)

    module = Grows()
    for compiled in (aotlens.compile(module, options=EAGER), aotlens.aot_module(module, aotlens.nop)):
        with pytest.raises(
            UnsupportedError, match=r"a layer \(`Linear`\) that the function creates and stores in"
        ):
            compiled(torch.ones(2, 3))
        assert len(module.heads) == 0
