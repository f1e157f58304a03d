"""Names and surroundings of the user's: no name of theirs meets one of ours, no side effect gets lost."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotlens.errors import UnsupportedError
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.observe import observing
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct

EAGER = CompileOptions(backend="eager")


def parameters_in_a_list(out: list[Tensor]) -> tuple[Tensor, Tensor]:
    return (out[0] * out[1]).sum(), out[1].exp()


def named_like_results(out_0: Tensor, base_0: Tensor, saved_0: Tensor) -> tuple[Tensor, ...]:
    made = out_0 * base_0 * saved_0.sin()
    return made[0], made.view(-1), out_0.view(3)


def named_like_the_text(below_views: Tensor, aten_exp: Tensor, gradients: Tensor, ctx: Tensor) -> Tensor:
    return (below_views * aten_exp * gradients * ctx).exp()


def leaves(count: int) -> list[Tensor]:
    return [torch.full((3,), float(at + 2)).requires_grad_() for at in range(count)]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (parameters_in_a_list, lambda: (leaves(2),)),
        (named_like_results, lambda: tuple(leaves(3))),
        (named_like_the_text, lambda: tuple(leaves(4))),
    ],
)
def test_any_name_may_be_the_users(function: Callable[..., Any], arguments: Callable[[], Any]) -> None:
    def run(call: Callable[..., Any]) -> list[Tensor]:
        given = arguments()
        flat = given[0] if isinstance(given[0], list) else list(given)
        results = call(*given)
        results = results if isinstance(results, tuple) else (results,)
        return [*results, *torch.autograd.grad([result.sum() for result in results], flat)]

    torch.testing.assert_close(run(compile_direct(function, arguments(), {}, EAGER).call), run(function))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        return x * self.steps


SEEN: list[Tensor] = []


def appending(x: Tensor) -> Tensor:
    SEEN.append(x)
    return x + len(SEEN)


def test_a_changed_attribute_is_undone_and_refused() -> None:
    module = Counting()
    with pytest.raises(UnsupportedError, match="changes the attribute `steps`"):
        compile_direct(module, (torch.ones(2),), {}, EAGER)
    assert module.steps == 0


def test_a_list_outside_that_grows_and_is_read_is_undone_and_refused() -> None:
    with pytest.raises(UnsupportedError, match="changes the list `SEEN`"):
        compile_direct(appending, (torch.ones(2),), {}, EAGER)
    assert SEEN == []


def through_dynamo(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend=dynamo_backend(CompileOptions(**options)))


@pytest.mark.rotates
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_float_arguments_may_change(backend: str) -> None:
    compiled = through_dynamo(lambda x, temperature: (x / temperature).sin(), backend=backend)
    for temperature in (1.0, 0.5, 0.25):
        expected = (torch.ones(2) / temperature).sin()
        torch.testing.assert_close(compiled(torch.ones(2), temperature), expected)


@pytest.mark.rotates
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_constants_in_the_function(backend: str) -> None:
    def scaled(x: Tensor) -> Tensor:
        y = x * torch.tensor([1.0, 2.0, 3.0])
        y[0] = 7.0
        return y.sum()

    x = torch.ones(3, requires_grad=True)
    through_dynamo(scaled, backend=backend)(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 2.0, 3.0]


@pytest.mark.rotates
def test_batch_norm_of_a_transposed_input_under_changing_sizes() -> None:
    norm, linear = nn.BatchNorm1d(8), nn.Linear(8, 10)

    def apply(x: Tensor) -> Tensor:
        return linear(norm(x.transpose(1, 2)).transpose(1, 2))

    compiled = through_dynamo(apply, backend="eager")
    for batch in (4, 5, 6):
        x = torch.randn(batch, 5, 8)
        torch.testing.assert_close(compiled(x), apply(x))


@pytest.mark.rotates
def test_a_backward_inside_a_compiled_function_is_not_traced_again(recwarn: pytest.WarningsRecorder) -> None:
    def train(x: Tensor, w: Tensor) -> Tensor:
        loss = (x * w).sin().sum()
        loss.backward()
        return loss.detach()

    w = torch.ones(3, requires_grad=True)
    loss = through_dynamo(train, backend="inductor")(torch.ones(3), w)
    torch.testing.assert_close((loss, w.grad), (torch.ones(3).sin().sum(), torch.ones(3).cos()))
    assert [
        str(warning.message) for warning in recwarn if "Dynamo does not know" in str(warning.message)
    ] == []


class WithOwnAttributes(nn.Module):
    """As diffusers' models: attributes that are not found are looked up in a configuration."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2)
        self.register_buffer("shift", torch.ones(2))

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)

    def forward(self, x: Tensor) -> Any:
        return self.second(self.first(x)) + self.shift


def test_parameters_of_a_module_with_its_own_getattr_have_whole_names() -> None:
    torch._dynamo.reset()
    targets = []
    with observing(on_compiled=lambda compiled: targets.append(compiled.target())):
        torch.compile(WithOwnAttributes(), backend=dynamo_backend(EAGER))(torch.ones(2, 3))
    assert sorted((row.kind, row.name) for row in targets[0].inputs) == [
        ("Buffer", "shift"),
        ("Parameter", "first.bias"),
        ("Parameter", "first.weight"),
        ("Parameter", "second.bias"),
        ("Parameter", "second.weight"),
        ("UserInput", "x"),
    ]
