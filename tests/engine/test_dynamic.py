"""Symbolic sizes: what one compilation serves, what a guard refuses, what is compiled anew."""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.compiled import Compiled
from aotlens.errors import UnsupportedError
from aotlens.observe import observing
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.render.text.layout import Page
from aotlens.render.text.ledger import guard_lines
from aotlens.torch_api.symbolic import mark_symbolic

DYNAMIC = CompileOptions(backend="eager", dynamic=True)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def doubled(x: Tensor) -> Tensor:
    return x * 2


def by_size(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 5 else x - 1


def compiled(fn: Any, *args: Any) -> Compiled:
    return compile_direct(fn, args, {}, DYNAMIC)


def test_one_compilation_serves_many_sizes() -> None:
    call: Any = aotlens.compile(doubled, options=DYNAMIC)
    for size in (3, 4, 7):
        x = torch.randn(size, 2)
        assert torch.equal(call(x), doubled(x))
    assert len(call.compiled) == 1


def test_a_violated_guard_compiles_anew() -> None:
    call: Any = aotlens.compile(by_size, options=DYNAMIC)
    for size in (3, 8, 4, 9, 1):
        x = torch.randn(size, 2)
        assert torch.equal(call(x), by_size(x))
    assert len(call.compiled) == 3  # small, large, and the size 1, which broadcasts


def test_a_violated_guard_is_an_error_of_the_flat_call() -> None:
    call = compiled(by_size, torch.randn(3, 2)).call
    with pytest.raises(ValueError) as raised:
        call(torch.randn(8, 2))
    assert "compiled `by_size`: sizes must satisfy" in str(raised.value)


def test_other_strides_are_compiled_anew() -> None:
    call: Any = aotlens.compile(lambda x: x.reshape(-1), options=DYNAMIC)
    for x in (
        torch.randn(3, 8)[:, ::2],
        torch.randn(5, 6)[:, ::2],
        torch.randn(4, 3).t(),
        torch.randn(6, 4)[::2],
    ):
        assert torch.equal(call(x), x.reshape(-1))
    assert (
        len(call.compiled) == 3
    )  # all elements at one distance, which is a symbol; by columns; rows left out


def test_a_size_at_which_operands_overlap_raises_as_eager() -> None:
    def shifted(x: Tensor) -> Tensor:
        x[4:].add_(x[:-4])
        return x

    call: Any = aotlens.compile(shifted, options=DYNAMIC)
    for size in (8, 7):
        x = torch.randn(size, 2)
        expected = shifted(x.clone())
        torch.testing.assert_close(call(x), expected)
    assert len(call.compiled) == 1
    for run in (shifted, call):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            run(torch.randn(9, 2))


def test_an_error_of_the_function_itself_is_not_taken_for_a_guard() -> None:
    def refused(x: Tensor, index: Tensor) -> Tensor:
        return x.index_select(0, index)

    call: Any = aotlens.compile(refused, options=DYNAMIC)
    call(torch.randn(4), torch.tensor([1, 2, 3]))
    with pytest.raises(IndexError):
        call(torch.randn(4), torch.tensor([1, 2, 9]))
    assert len(call.compiled) == 1


def test_only_marked_sizes_are_symbols() -> None:
    x, y = torch.randn(4, 3), torch.randn(3)
    mark_symbolic(x, {0})
    mark_symbolic(y, set())

    def scaled(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    found = compiled(scaled, x, y)
    assert str(found.captured.inputs[0].fake.shape) == "torch.Size([s0, 3])".replace("s0", symbol(found))
    other = torch.randn(9, 3)
    assert torch.equal(found.call(other, y), scaled(other, y))
    with pytest.raises(TypeError):
        found.call(torch.randn(9, 1), y)


def symbol(found: Compiled) -> str:
    return str(found.captured.inputs[0].fake.shape[0])


def test_parameters_keep_their_sizes() -> None:
    found = compiled(nn.Linear(3, 2), torch.randn(5, 3))
    assert tuple(found.captured.inputs[0].fake.shape) == (2, 3)
    assert all(type(size) is int for size in found.captured.inputs[0].fake.shape)


def test_sizes_are_saved_as_numbers() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    found = compiled(lambda x: x.sum(), x)
    assert [saved.node.target for saved in found.parts.saved] == ["aten.sym_size.int"] * 2
    assert "save_for_backward" not in found.source
    found.call(x).backward()
    assert torch.equal(x.grad, torch.ones(4, 3))  # type: ignore[arg-type]


def test_a_size_check_of_the_function_is_kept() -> None:
    def first(x: Tensor, count: Tensor) -> Tensor:
        size = count.item()
        torch._check(size >= 0)
        torch._check(size < x.shape[0])
        return x.new_zeros(int_like(size)) + x.sum()

    call = compile_direct(first, (torch.randn(4), torch.tensor(2)), {}, CompileOptions(backend="eager")).call
    assert call(torch.randn(4), torch.tensor(3)).shape == (3,)
    with pytest.raises(RuntimeError) as raised:
        call(torch.randn(4), torch.tensor(4))
    assert "compiled `first`: sizes must satisfy u0 <" in str(raised.value)


def int_like(size: Any) -> Any:
    return size


def test_a_branch_on_data_is_refused_with_its_line() -> None:
    def chosen(x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > 0 else x

    with pytest.raises(UnsupportedError) as raised:
        compiled(chosen, torch.randn(3))
    assert "control flow that depends on data" in str(raised.value)
    assert "test_dynamic.py" in str(raised.value)


def test_each_guard_has_the_line_that_made_it() -> None:
    target = compiled(by_size, torch.randn(8, 2)).target()
    (asked,) = [guard for guard in target.guards if guard.expression == "x.shape[0] > 5"]
    assert asked.span is not None
    assert asked.span.line == by_size.__code__.co_firstlineno + 1
    assert [site.text for site in asked.sites] == ["x.shape[0] > 5"]
    assert asked.reason == "this expression needs to know"
    assert any(guard.expression == "x.shape[1] >= 2" and guard.span is None for guard in target.guards)
    shown = "".join(line.plain + "\n" for line in guard_lines(target, Page(100)))
    assert "Guards" in shown
    assert f"test_dynamic.py:{asked.span.line}:" in shown


@pytest.mark.rotates
def test_dynamo_guards_have_their_line() -> None:
    torch.compiler.reset()
    found: list[Compiled] = []
    with observing(on_compiled=found.append):
        torch.compile(by_size, backend="aotlens", dynamic=True)(torch.randn(8, 2))
    asked = [guard for guard in found[0].target().guards if guard.expression == "x.shape[0] > 5"]
    assert [site.text for guard in asked for site in guard.sites] == [
        "return x * 2 if x.shape[0] > 5 else x - 1"
    ]


def test_known_sizes_have_no_guards() -> None:
    target = compile_direct(doubled, (torch.randn(3),), {}, CompileOptions(backend="eager")).target()
    assert target.guards == ()
    assert not list(guard_lines(target, Page(100)))


def halves_apart(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y


def test_inputs_that_lie_apart_on_one_storage_are_checked_to_stay_so() -> None:
    memory = torch.arange(20.0)
    compiled = compile_direct(
        halves_apart, (memory[:4], memory[4:8]), {}, CompileOptions(dynamic=True, backend="eager")
    )
    assert torch.equal(
        compiled.call(memory[:4], memory[4:8]), halves_apart(memory[:4].clone() / 2, memory[4:8])
    )
    with pytest.raises(AssertionError, match="`x` and `y` have other offsets on their storage"):
        compiled.call(memory[:6], memory[4:10])
    apart = torch.arange(6.0), torch.arange(6.0)
    assert torch.equal(compiled.call(*apart), torch.arange(6.0) * 3)


@pytest.mark.rotates
def test_inductor_is_given_a_size_that_a_later_comparison_tells() -> None:
    def joined(x: Tensor) -> Tensor:
        rows, columns = x.shape
        both = torch.cat([x.view(rows * rows), x.flatten()])
        if rows != 4 or columns != 4:
            raise ValueError("sizes")
        return both

    x = torch.randn(4, 4)
    call = aotlens.compile(joined, options=CompileOptions(backend="inductor", dynamic=True))
    torch.testing.assert_close(call(x), joined(x))


def test_a_size_as_a_key_is_refused_by_name() -> None:
    @functools.lru_cache
    def ramp(length: int) -> Tensor:
        return torch.arange(length)

    def ramped(x: Tensor) -> Tensor:
        return x + ramp(x.shape[0])

    with pytest.raises(
        UnsupportedError, match=r"a symbolic size as a key.*`ramp\(x.shape\[0\]\)`.*static sizes"
    ):
        compiled(ramped, torch.randn(3))
    assert compiled(lambda x: x + ramp(int(x.shape[0])), torch.randn(3)) is not None


def test_a_backward_that_fails_assumes_no_sizes() -> None:
    """Autograd's message has numbers for sizes, which are those of the first call."""

    def step(x: Tensor, count: Tensor) -> Tensor:
        first = x.sin() * count
        count.add_(1)
        return first

    found = compiled(step, torch.ones(3, 4, requires_grad=True), torch.ones(4))
    assert "count.shape[0] == x.shape[1]" in [guard.expression for guard in found.target().guards]
    result = found.call(torch.ones(5, 6, requires_grad=True), torch.ones(6))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
