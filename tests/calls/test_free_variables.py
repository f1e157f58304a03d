"""Tensors that a function reads from outside: other memory, strides, layouts and gradients."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.calls.test_direct_guards import EAGER, follows
from tests.programs.program import leaf, plain


class Affine(nn.Module):
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))
        self.register_buffer("shift", torch.randn(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.shift


def exchange_data(tensor: Tensor, change: Callable[[Tensor], Tensor]) -> None:
    tensor.data = change(tensor.data)


IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "type": torch.Tensor.double,
    "strides": lambda data: data.t().contiguous().t(),
    "view of more memory": lambda data: data.new_ones(8, 12)[::2, ::2],
    "negative": lambda data: torch.ones(4, 6, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("change", IN_PLACE)
@pytest.mark.parametrize("name", ["weight", "shift"])
def test_a_tensor_of_a_module_that_gets_other_memory_in_place_is_compiled_for_anew(
    change: str, name: str
) -> None:
    """A backend's kernels read memory as it was, and `model.to(memory_format=…)` keeps the parameters."""
    module, x = Affine(), plain(4, 6)
    compiled: Any = aotlens.compile(module, options=EAGER)
    compiled(x)
    exchange_data(getattr(module, name), IN_PLACE[change])
    seen: list[Any] = []
    with aotlens.observe.observing(on_compiled=seen.append):
        torch.testing.assert_close(compiled(x), module(x))
        compiled(x)
    assert len(seen) == 1


def test_memory_of_the_same_kind_is_not_compiled_for_anew() -> None:
    module, x = Affine(), plain(4, 6)
    compiled: Any = aotlens.compile(module, options=EAGER)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), module(x))
        exchange_data(module.weight, lambda data: data - 0.1)
    assert len(compiled.compiled) == 1


def test_memory_that_is_an_argument_from_then_on() -> None:
    def added(module: Affine, x: Tensor) -> Tensor:
        x.add_(1)
        return module(x)

    x, eager, module = plain(4, 6), Affine(), Affine()
    module.load_state_dict(eager.state_dict())
    compiled: Any = aotlens.compile(functools.partial(added, module), options=EAGER)
    compiled(x.clone())
    given, expected = x.clone(), x.clone()
    exchange_data(module.shift, lambda data: given)
    exchange_data(eager.shift, lambda data: expected)
    torch.testing.assert_close(compiled(given), added(eager, expected))


@pytest.mark.parametrize("change", ["type", "strides"])
def test_a_tensor_from_outside_that_gets_other_memory_in_place(change: str) -> None:
    shift, x = plain(4, 6), plain(4, 6)
    assert follows(lambda x: x + shift, lambda: exchange_data(shift, IN_PLACE[change]), x) == 0


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_tied_weights_that_are_untied_and_tied_again(dynamic: bool) -> None:
    module, x = TwoLayers(), plain(2, 3)
    compiled: Any = aotlens.compile(module, options=CompileOptions(backend="eager", dynamic=dynamic))
    for weight in (module.first.weight, nn.Parameter(torch.ones(3, 3)), module.first.weight):
        module.second.weight = weight
        torch.testing.assert_close(compiled(x), module(x))
    assert len(compiled.compiled) == 2


def test_a_flat_call_and_an_exported_module_refuse_weights_that_are_untied() -> None:
    module, x = TwoLayers(), plain(2, 3)
    call = compile_direct(module, (x,), {}, EAGER).call
    namespace: dict[str, Any] = {}
    exec(aotlens.export(module, x), namespace)
    exported = namespace["bind"](module)
    for run in (call, exported):
        torch.testing.assert_close(run(x), module(x))
    module.second.weight = nn.Parameter(torch.ones(3, 3))
    with pytest.raises(AssertionError, match=r"`second\.weight` was the same tensor as `first\.weight`"):
        call(x)
    with pytest.raises(ValueError, match=r"tensors are .*'second\.weight'.*exported were"):
        exported(x)


def test_arguments_on_one_memory_in_another_way_are_compiled_for_anew_under_symbolic_sizes() -> None:
    def added(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return x * 2

    compiled: Any = aotlens.compile(added, options=CompileOptions(backend="eager", dynamic=True))
    eager, ours = torch.arange(10.0), torch.arange(10.0)
    for first, second in ((0, 4), (4, 0), (2, 2), (0, 4)):
        expected = added(eager[first : first + 4], eager[second : second + 4])
        torch.testing.assert_close(compiled(ours[first : first + 4], ours[second : second + 4]), expected)
        torch.testing.assert_close(ours, eager)


def test_another_default_device() -> None:
    def three() -> Tensor:
        return torch.ones(3)

    compiled: Any = aotlens.compile(three, options=EAGER)
    assert compiled().device.type == "cpu"
    with torch.device("meta"):
        assert compiled().device.type == "meta"
    assert compiled().device.type == "cpu"


def conjugate(x: Tensor) -> Tensor:
    return x.conj()


def elsewhere(x: Tensor) -> Tensor:
    return x.to("meta")


@pytest.mark.parametrize(
    ("x", "change", "wanted"),
    [
        (torch.ones(3), elsewhere, "contiguous on cpu"),
        (torch.ones(3, dtype=torch.complex64), conjugate, "contiguous on cpu, not conjugated"),
        (torch.ones(3, dtype=torch.complex64).conj(), conjugate, "contiguous on cpu, conjugated"),
        (torch.ones(3, dtype=torch.complex64).imag, torch._neg_view, r"\(2,\) on cpu, not negated"),
        (torch.ones(()), torch._neg_view, "contiguous on cpu, not negated"),
    ],
)
def test_a_flat_call_tells_memory_that_reads_otherwise(
    x: Tensor, change: Callable[[Tensor], Tensor], wanted: str
) -> None:
    call = compile_direct(torch.sin, (x,), {}, EAGER).call
    torch.testing.assert_close(call(x), x.sin())
    with pytest.raises(TypeError, match=f"{wanted}, got another"):
        call(change(x))


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_a_gradient_that_is_lazily_negated_or_conjugated(
    shape: tuple[int, ...], dynamic: bool, kind: str
) -> None:
    """A backend is given what lies in memory."""

    def reading(module: Any, inputs: list[Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            assert not any(isinstance(t, Tensor) and (t.is_neg() or t.is_conj()) for t in given)
            return module(*given)

        return run

    x = torch.randn(shape, dtype=torch.complex64 if kind == "complex" else torch.float32, requires_grad=True)
    gradient = torch.randn(shape, dtype=torch.complex64).conj()
    gradient = gradient if kind == "complex" else gradient.imag
    call = aotlens.compile(torch.sin, options=CompileOptions(backend=reading, dynamic=dynamic))
    (found,) = torch.autograd.grad(call(x), x, gradient)
    (expected,) = torch.autograd.grad(x.sin(), x, gradient)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (torch.Tensor.to_sparse, "torch.sparse_coo"),
        (torch.Tensor.to_sparse_csr, "torch.sparse_csr"),
        (torch.Tensor.to_mkldnn, "torch._mkldnn"),
        (lambda x: torch._make_per_tensor_quantized_tensor(x.to(torch.int8), 0.1, 0), "quantized"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # torch's, of layouts that it calls beta
def test_a_tensor_that_is_not_dense_is_refused_by_its_kind(
    make: Callable[[Tensor], Tensor], kind: str
) -> None:
    call = aotlens.compile(torch.sin, options=EAGER)
    call(torch.ones(3, 3))
    with pytest.raises(UnsupportedError, match=f"a {kind} tensor as the input"):
        call(make(torch.ones(3, 3)))


def test_a_tensor_from_outside_that_is_an_argument_too() -> None:
    total = torch.zeros(3)

    def step(x: Tensor) -> Tensor:
        x.add_(1)
        return total * 2

    compiled = aotlens.compile(step, options=EAGER)
    results = [compiled(x).tolist() for x in (torch.zeros(3), total, torch.zeros(3), total[1:])]

    assert results == [[0.0] * 3, [2.0] * 3, [2.0] * 3, [2.0, 4.0, 4.0]]


def test_a_tensor_from_outside_is_read_at_each_call() -> None:
    table = torch.ones(3)
    compiled = aotlens.compile(lambda x: x * table, options=EAGER)
    first = compiled(torch.ones(3))
    table.add_(1)

    assert torch.equal(first, torch.ones(3))
    assert torch.equal(compiled(torch.ones(3)), table)


def test_a_tensor_from_outside_whose_strides_change() -> None:
    table = torch.arange(4.0).view(2, 2)

    def turn(x: Tensor) -> Tensor:
        table.t_()
        return table + x

    compiled = aotlens.compile(turn, options=EAGER)
    once, twice = compiled(torch.zeros(2, 2)), compiled(torch.zeros(2, 2))

    assert torch.equal(once, twice.t())
    assert torch.equal(table, twice)


def test_places_hold_their_tensors_again_after_an_error() -> None:
    total = torch.zeros(3)

    def step(x: Tensor) -> Tensor:
        total.add_(x)
        raise KeyError("the user's own")

    with pytest.raises(KeyError):
        aotlens.compile(step, options=EAGER)(torch.ones(3))

    assert type(total) is Tensor
    assert torch.equal(total, torch.zeros(3))


class Turning(nn.Module):
    """A buffer that lies otherwise after each call."""

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.arange(16.0).view(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.kept.t_()
        return x @ self.kept


class Growing(nn.Module):
    """A buffer that the layer binds to a longer one."""

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.kept = torch.cat([self.kept, x])
        return self.kept.sum(0) * self.kept.shape[0]


@pytest.mark.parametrize("kind", [Turning, Growing])
def test_a_buffer_that_lies_otherwise_after_a_call_is_never_taken_as_it_was(kind: type[nn.Module]) -> None:
    x, options = torch.randn(1, 4), CompileOptions(backend="eager")
    eager, module = kind(), kind()
    call = aotlens.compile(module, options=options)
    for _ in range(4):
        torch.testing.assert_close(call(x), eager(x))
    module = kind()
    flat = compile_direct(module, (x,), {}, options).call
    flat(x)
    with pytest.raises(TypeError, match="`kept` must be a tensor like"):
        flat(x)


def test_a_buffer_that_is_turned_is_compiled_anew_in_place_of_functorch() -> None:
    eager, module, x = Turning(), Turning(), torch.randn(1, 4)
    call = aotlens.aot_module(module, lambda gm, _: gm, lambda gm, _: gm)
    for _ in range(4):
        torch.testing.assert_close(call(x), eager(x))


def test_a_sparse_tensor_of_the_surroundings() -> None:
    neighbours = torch.eye(3).to_sparse()
    spread = aotlens.compile(lambda x: torch.sparse.mm(neighbours, x), options=EAGER)
    for _ in range(2):
        x = leaf(3, 2)
        spread(x).sum().backward()
        torch.testing.assert_close(x.grad, torch.ones(3, 2))


def test_a_numpy_array_that_is_written_to() -> None:
    offsets = np.zeros(3, dtype=np.float32)
    moved = aotlens.compile(lambda x: x + torch.from_numpy(offsets), options=EAGER)
    x = plain(3)
    torch.testing.assert_close(moved(x), x)
    offsets += 1
    torch.testing.assert_close(moved(x), x + 1)


def test_a_tensor_of_the_surroundings_without_memory_is_filled() -> None:
    """As FSDP gathers a weight."""
    whole, part = torch.zeros(6), torch.arange(6.0)

    def gathered(x: Tensor) -> Tensor:
        with torch.no_grad():
            whole.untyped_storage().resize_(24)
            whole.copy_(part)
        return x * whole

    call, x = aotlens.compile(gathered, options=EAGER), plain(6)
    for _ in range(2):
        whole.untyped_storage().resize_(0)
        torch.testing.assert_close(call(x), x * part)
        torch.testing.assert_close(whole, part)


@pytest.mark.parametrize("gradient", [None, torch.ones(3)])
def test_a_gradient_of_the_surroundings_that_is_read_is_refused(gradient: Tensor | None) -> None:
    weight = leaf(3)
    weight.grad = gradient
    call = aotlens.compile(lambda x: x if weight.grad is None else x * 2, options=EAGER)
    with pytest.raises(UnsupportedError, match=r"reads or changes `weight.grad`"):
        call(plain(3))
    assert weight.grad is gradient


def test_a_backward_hook_of_a_layer_that_keeps_what_it_sees_is_refused() -> None:
    seen: list[Tensor] = []
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_full_backward_hook(lambda layer, inner, outer: seen.extend(outer))
    call = aotlens.compile(model, options=EAGER)
    with pytest.raises(UnsupportedError, match="a hook or a custom backward that changes the list `seen`"):
        call(leaf(2, 3)).sum().backward()
    assert not seen or type(seen[-1]) is Tensor
