"""What `aotlens.compile` makes of a module is a module, and one compiled function may call another."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from tests.programs.program import leaf, plain

EAGER = CompileOptions(backend="eager")


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).tanh()

    def generate(self, x: Tensor) -> Tensor:
        return self(self(x))


def test_it_has_the_names_of_the_users_module() -> None:
    model = Decoder()
    compiled = aotlens.compile(model, options=EAGER)
    assert isinstance(compiled, Decoder)
    assert list(model.state_dict()) == list(compiled.state_dict())
    assert all(one is other for one, other in zip(model.parameters(), compiled.parameters(), strict=True))
    compiled.eval()
    assert not model.training


def test_its_own_methods_call_what_is_compiled() -> None:
    model = Decoder()
    compiled, x = aotlens.compile(model, options=EAGER), plain(3)
    torch.testing.assert_close(compiled.generate(x), model.generate(x))
    assert vars(type(compiled))["compiled"]


def test_an_optimizer_trains_it() -> None:
    torch.manual_seed(0)
    models = [Decoder()]
    models.append(copy.deepcopy(models[0]))
    trained = [models[0], aotlens.compile(models[1], options=EAGER)]
    x = plain(4, 3)
    for model in trained:
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(models[1].state_dict(), models[0].state_dict())


@pytest.mark.parametrize("how", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_is_compiled_by_itself(how: Callable[[Any], Any]) -> None:
    compiled, x = aotlens.compile(Decoder(), options=EAGER), plain(3)
    before = compiled(x)
    other = how(compiled)
    torch.testing.assert_close(other(x), before)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert not other(x).any()
    torch.testing.assert_close(compiled(x), before)


def test_it_is_a_part_of_another_module() -> None:
    whole = nn.Sequential(aotlens.compile(Decoder(), options=EAGER), nn.Linear(3, 1))
    x = plain(2, 3)
    whole(x).sum().backward()
    expected = [parameter.grad for parameter in whole.parameters()]
    whole.zero_grad()
    aotlens.compile(whole, options=EAGER)(x).sum().backward()
    torch.testing.assert_close([parameter.grad for parameter in whole.parameters()], expected)


@pytest.mark.parametrize("entry", ["compile", "aot_function"])
def test_a_compiled_function_calls_another(entry: str) -> None:
    def made(fn: Callable[..., Any]) -> Callable[..., Any]:
        return (
            aotlens.compile(fn, options=EAGER)
            if entry == "compile"
            else aotlens.aot_function(fn, aotlens.nop)
        )

    inner = made(lambda x, y: x.sin() * y)
    outer = made(lambda x, y: inner(x, y) + inner(y, x))
    x, y = leaf(3), leaf(3)
    found = torch.autograd.grad(outer(x, y).sum(), (x, y))
    expected = torch.autograd.grad((x.sin() * y + y.sin() * x).sum(), (x, y))
    torch.testing.assert_close(found, expected)
    assert not inner.compiled  # type: ignore[attr-defined]


def test_a_scripted_layer_is_refused_by_name_and_left_as_it_was() -> None:
    scripted = torch.jit.script(nn.Linear(2, 2))
    model = nn.Sequential(scripted, nn.ReLU())
    with pytest.raises(UnsupportedError, match="a TorchScript module, `0`; compile the module that"):
        aotlens.compile(model, options=EAGER)(torch.ones(1, 2))
    assert model(torch.ones(1, 2)).shape == (1, 2)


def test_a_scripted_layer_of_a_closure_is_refused_where_it_is_called() -> None:
    scripted = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(UnsupportedError, match=r"TorchScript module, `.*Linear`, at .*`scripted\(x\)`"):
        aotlens.compile(lambda x: scripted(x) * 2, options=EAGER)(torch.ones(1, 2))
    assert {type(parameter) for parameter in scripted.parameters()} == {nn.Parameter}
    aotlens.compile(lambda x: x @ scripted.weight, options=EAGER)(torch.ones(1, 2)).sum().backward()
    assert torch.equal(scripted.weight.grad, torch.ones(2, 2))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("dynamic", [False, True])
def test_an_encoder_that_packs_its_rows_is_refused(dynamic: bool) -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1).eval()
    compiled = aotlens.compile(encoder, options=CompileOptions(backend="eager", dynamic=dynamic))
    padding = torch.tensor([[False, False, True], [False, True, True]])
    with (
        torch.no_grad(),
        pytest.raises(UnsupportedError, match=r"a nested tensor .*enable_nested_tensor=False"),
    ):
        compiled(plain(2, 3, 4), src_key_padding_mask=padding)
