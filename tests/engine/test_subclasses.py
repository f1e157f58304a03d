"""Wrapper subclasses: what the text and the graphs make of them, and what is refused in which words."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import Partial, Replicate
from torch.testing._internal.two_tensor import TwoTensor

import aotlens
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.programs.operators.distributed import spread
from tests.programs.operators.jagged import jagged
from tests.programs.operators.subclasses import two, two_leaf, two_tape


def compiled(fn: Any, *args: Any) -> Any:
    return compile_direct(fn, args, {}, CompileOptions(backend="eager"))


def test_graph_inputs_are_named_after_what_is_inside() -> None:
    found = compiled(lambda x, y: x * y, two_leaf(3), torch.ones(3))
    names = [given.slot.name for given in found.parts.forward.inputs]
    assert names == ["x.a", "x.b", "y"]
    assert [out.slot.name for out in found.parts.forward.outputs[:2]] == ["out.a", "out.b"]
    assert found.target().inputs[0].name == "x"


def test_compilers_get_graphs_of_plain_tensors() -> None:
    seen = []

    def compiler(gm: Any, inputs: list[Any]) -> Any:
        seen.append([type(value).__name__ for value in inputs])
        return gm

    x = two_leaf(3)
    out = aotlens.aot_function(lambda x: x.sin(), compiler)(x)
    out.backward(torch.ones_like(out.detach()))
    assert type(out) is type(x.grad) is TwoTensor
    assert seen[0] == ["FakeTensor", "FakeTensor"]


def transpose(x: Tensor) -> Tensor:
    return x.t_()


def write(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y.sum()


def test_metadata_mutation_is_refused() -> None:
    with pytest.raises(
        RuntimeError, match="Metadata mutations are currently not allowed on tensor subclasses"
    ):
        compiled(transpose, two(3, 4))


def test_mutated_aliases_are_refused() -> None:
    x = two(3, 4)
    with pytest.raises(
        RuntimeError, match="Encountered aliased inputs that are mutated in the graph, but"
    ) as found:
        compiled(write, x, x.view(-1))
    assert "is a tensor subclass. This is not supported today" in str(found.value)


def test_unexpected_subclass_as_tangent_is_refused() -> None:
    x = torch.ones(3, requires_grad=True)
    out = aotlens.aot_function(lambda x: x * 2, aotlens.nop)(x)
    with pytest.raises(
        RuntimeError, match="we encountered a tensor subclass where we guessed its metadata incorrectly"
    ):
        out.backward(TwoTensor(torch.ones(3), torch.ones(3)))


def test_wrapper_for_a_plain_result_is_no_part_of_a_wrapped_gradient() -> None:
    """The gradient of `y` is a wrapper by the first result; what the second gets would be in it."""
    y = torch.ones(3, requires_grad=True)
    first, second = compiled(lambda x, y: (x * y, y.cos()), two(3), y).call(two(3), y)
    with pytest.raises(RuntimeError, match=r"The gradient of `out\[1\]` was expected as Tensor"):
        (first.sum() + second.sum()).backward(retain_graph=True)
    torch.autograd.backward((first, second), (two(3), torch.ones(3)))
    assert isinstance(y.grad, TwoTensor)


def test_tangent_without_its_wrapper_is_refused() -> None:
    out = compiled(lambda x: x * 2, two_leaf(3)).call(two_leaf(3))
    with pytest.raises(RuntimeError, match="must implement __coerce_same_metadata_as_tangent__"):
        torch.autograd.grad(out, out.grad_fn.next_functions[0][0].variable, torch.ones(3))


class Scaled(torch.Tensor):
    """A tensor with a number beside it; its tangent is always scaled by one."""

    inner: Tensor  # type: ignore[assignment]  # the name of a method of tensors
    scale: float

    @staticmethod
    def __new__(cls: Any, inner: Tensor, scale: float) -> "Scaled":
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )
        made.inner, made.scale = inner, scale
        return made

    def __tensor_flatten__(self) -> tuple[list[str], float]:
        return ["inner"], self.scale

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], scale: float, size: Any, stride: Any) -> "Scaled":
        return Scaled(inner["inner"], scale)

    def __coerce_tangent_metadata__(self) -> "Scaled":
        return Scaled(self.inner, 1.0)

    def __coerce_same_metadata_as_tangent__(self, scale: float, kind: Any = None) -> "Scaled":
        return Scaled(self.inner * (self.scale / scale), scale)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's declaration lacks `func`
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        scale = next((arg.scale for arg in args if isinstance(arg, Scaled)), 1.0)
        plain = [arg.inner if isinstance(arg, Scaled) else arg for arg in args]
        result = func(*plain, **(kwargs or {}))
        return Scaled(result, scale) if isinstance(result, Tensor) else result


def test_tangent_is_brought_to_the_metadata_that_was_traced() -> None:
    x = Scaled(torch.ones(3), 4.0).requires_grad_()
    out = compiled(lambda x: x * 3, x).call(x)
    gradient: Any = torch.autograd.grad(out, x, Scaled(torch.ones(3), 2.0))[0]
    assert gradient.scale == 1.0
    assert torch.equal(gradient.inner, torch.full((3,), 6.0))


def test_double_backward_is_refused_by_name() -> None:
    x = two_leaf(3)
    out = compiled(lambda x: x * x, x).call(x)
    (gradient,) = torch.autograd.grad(out, x, torch.ones_like(out.detach()), create_graph=True)
    with pytest.raises(RuntimeError, match="takes or returns a tensor subclass"):
        torch.autograd.grad(gradient, x, torch.ones_like(gradient.detach()))


def test_another_kind_of_argument_is_refused() -> None:
    call = compiled(lambda x: x.sin(), two(3)).call
    with pytest.raises(TypeError, match="`x` must be a `TwoTensor`, got a 'Tensor'"):
        call(torch.ones(3))
    with pytest.raises(TypeError, match=r"`x\.a` must be a tensor like"):
        call(two(4))


def test_export_refuses_subclasses_by_argument() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            return (x.sin(),)

    with pytest.raises(RuntimeError, match="not currently supported with traceable tensor subclass: `x`"):
        aotlens.aot_export_module(Model(), (two(3),), trace_joint=False)


def test_writes_reach_what_a_wrapper_with_history_is_a_view_of() -> None:
    x: Any = two_tape(3, 4)
    call = compiled(lambda x: x.mul_(2), two_tape(3, 4)).call
    before = x.a.clone()
    call(x)
    assert torch.equal(x.a, before * 2)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda fn: aotlens.aot_function(fn, aotlens.nop),
        lambda fn: aotlens.compile(fn, options=CompileOptions(backend="eager")),
    ],
    ids=["flat", "compile"],
)
def test_later_call_with_a_wrapper_where_a_plain_tensor_was(wrap: Any) -> None:
    call = wrap(lambda x, y: x * y + 1)
    plain, wrapper = torch.randn(3), two(3)
    for args in ((wrapper, plain), (plain, wrapper), (plain, plain), (wrapper, plain)):
        found, wanted = call(*args), args[0] * args[1] + 1
        assert type(found) is type(wanted)
        for inside, expected in (
            ((found.a, wanted.a),) if isinstance(found, TwoTensor) else ((found, wanted),)  # type: ignore[attr-defined]
        ):
            torch.testing.assert_close(inside, expected)


@pytest.mark.rotates
@pytest.mark.parametrize("dynamic", [None, True], ids=["automatic", "dynamic"])
def test_later_sizes_of_a_distributed_tensor_behind_dynamo(dynamic: bool | None) -> None:
    """The whole has sizes that its local part does not tell."""
    backend = dynamo_backend(CompileOptions(backend="eager"))
    call = torch.compile(lambda x: x.sin(), backend=backend, dynamic=dynamic)
    for rows in (4, 6, 2):
        x: Any = spread(rows, 4)
        out = call(x)
        out.sum().backward()
        assert tuple(out.shape) == tuple(x.shape) == (2 * rows, 4)
        torch.testing.assert_close(out.to_local(), x.to_local().sin())
        torch.testing.assert_close(x.grad.to_local(), x.detach().to_local().cos())


@pytest.mark.rotates
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * 2).to_padded_tensor(0.0),
        lambda x: x.softmax(1).values() * 2,
        lambda x: x.values() * x._get_max_seqlen(),
    ],
    ids=["padded", "softmax", "number"],
)
def test_later_longest_row_of_as_many_rows_behind_dynamo(fn: Any) -> None:
    """torch marks these sizes as ones that vary, and nothing else tells that the rows are others."""
    call = torch.compile(fn, backend=dynamo_backend(CompileOptions(backend="eager")))
    for lengths in ([2, 4], [3, 3], [5, 1], [1, 4, 1], [6], [3, 3]):
        rows = [torch.randn(length, 3) for length in lengths]
        x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
        found, wanted = call(x), fn(x)
        torch.testing.assert_close(found, wanted)
        gradients = [torch.autograd.grad(result.sin().sum(), x)[0].values() for result in (found, wanted)]
        torch.testing.assert_close(*gradients)


@pytest.mark.rotates
def test_later_lengths_of_a_jagged_tensor_behind_dynamo() -> None:
    call = torch.compile(lambda x: x.values().mean(), backend=dynamo_backend(CompileOptions(backend="eager")))
    for lengths in ([2, 4], [5, 1, 2], [3, 3], [1, 2, 3, 4, 5], [6, 9]):
        rows = [torch.randn(length, 3) for length in lengths]
        x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
        call(x).backward()
        count = sum(lengths) * 3
        torch.testing.assert_close(x.grad.values(), torch.full((sum(lengths), 3), 1 / count))  # type: ignore[union-attr]


WRAPS = [
    lambda fn: aotlens.aot_function(fn, aotlens.nop),
    lambda fn: aotlens.compile(fn, options=CompileOptions(backend="eager")),
    lambda fn: aotlens.compile(fn, options=CompileOptions(backend="eager", dynamic=True)),
]


@pytest.mark.parametrize(
    "wrap",
    [*WRAPS, lambda fn: torch.compile(fn, backend=dynamo_backend(CompileOptions(backend="eager")))],
    ids=["flat", "compile", "dynamic", "dynamo"],
)
def test_later_call_with_other_rows_between_the_same_offsets(wrap: Any) -> None:
    """What a jagged tensor knows of its longest row decides how far it is padded; it may know nothing."""
    values, offsets = torch.randn(6, 2), torch.tensor([0, 2, 6])
    call = wrap(lambda x: (x * 2).to_padded_tensor(0.0))
    for longest in (4, 5, None, 6, None, 4):
        lengths: Any = {} if longest is None else {"min_seqlen": 2, "max_seqlen": longest}
        x = torch.nested.nested_tensor_from_jagged(values, offsets, **lengths)
        torch.testing.assert_close(call(x), (x * 2).to_padded_tensor(0.0))


@pytest.mark.parametrize("wrap", WRAPS, ids=["flat", "compile", "dynamic"])
def test_later_call_with_another_placement(wrap: Any) -> None:
    call = wrap(lambda x: x + 1)
    for placement in (Replicate(), Partial(), Replicate()):
        x: Any = spread(4, 4, placement=placement)
        found, wanted = call(x), x + 1
        assert found.placements == wanted.placements
        torch.testing.assert_close(found.to_local(), wanted.to_local())


def test_jagged_tensors_with_symbolic_sizes() -> None:
    call = aotlens.compile(lambda x: x.sin(), options=CompileOptions(backend="eager", dynamic=True))
    for x in (jagged(grad=True), jagged()):
        torch.testing.assert_close(call(x).values(), x.sin().values())
