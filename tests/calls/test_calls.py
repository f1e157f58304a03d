"""How a compiled function is called: orders of forward and backward, tangents, threads, freed memory."""

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.programs.program import leaf, plain, tape
from tests.programs.python.functions import CountsBothWays

pytestmark = pytest.mark.filterwarnings("ignore")  # what torch warns of, eager warns of too

EAGER = CompileOptions(backend="eager")


def compiled(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    return compile_direct(fn, args, kwargs, EAGER).call


def chain(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sigmoid() * x.sum()


def two_outputs(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin() * y, x * 3


def gradients(fn: Callable[..., Any], tangent: Callable[[Tensor], Tensor], *args: Tensor) -> list[Tensor]:
    out = fn(*args)
    return list(torch.autograd.grad(out, args, tangent(out)))


TANGENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": torch.ones_like,
    "transposed": lambda out: torch.arange(out.numel()).view(out.shape[::-1]).t().to(out.dtype),
    "expanded": lambda out: torch.ones(()).expand(out.shape),
    "strided": lambda out: torch.ones(out.shape[0] * 2, out.shape[1])[::2],
    "zero": torch.zeros_like,
}


@pytest.mark.parametrize("kind", TANGENTS)
def test_tangents_of_any_layout(kind: str) -> None:
    def step(x: Tensor, w: Tensor) -> Tensor:
        return (x.t().contiguous().view(-1).view(4, 3).t() @ w).relu()

    x, w = leaf(3, 4), leaf(4, 5)
    expected = gradients(step, TANGENTS[kind], x, w)
    torch.testing.assert_close(gradients(compiled(step, x, w), TANGENTS[kind], x, w), expected)


@pytest.mark.parametrize("used", [0, 1])
def test_one_output_alone_is_differentiated(used: int) -> None:
    x, y = leaf(3), leaf(3)
    found = torch.autograd.grad(compiled(two_outputs, x, y)(x, y)[used].sum(), (x, y), allow_unused=True)
    expected = torch.autograd.grad(two_outputs(x, y)[used].sum(), (x, y), allow_unused=True)
    assert found[0] is not None
    assert expected[0] is not None
    torch.testing.assert_close(found[0], expected[0])
    if expected[1] is not None:
        torch.testing.assert_close(found[1], expected[1])
    else:
        assert found[1] is None or not found[1].any()


def test_gradient_of_one_input_alone() -> None:
    x, y = leaf(3), leaf(3)
    (found,) = torch.autograd.grad(compiled(two_outputs, x, y)(x, y)[0].sum(), y)
    torch.testing.assert_close(found, x.sin().detach())


def test_two_forwards_before_two_backwards() -> None:
    x, w, other = leaf(3, 4), leaf(4, 5), leaf(3, 4)
    call = compiled(chain, x, w)
    first, second = call(x, w), call(other, w)
    found = torch.autograd.grad(second.sum(), (other, w)), torch.autograd.grad(first.sum(), (x, w))
    torch.testing.assert_close(found[0], torch.autograd.grad(chain(other, w).sum(), (other, w)))
    torch.testing.assert_close(found[1], torch.autograd.grad(chain(x, w).sum(), (x, w)))


def test_backward_twice_with_retained_graph() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    out = compiled(chain, x, w)(x, w).sum()
    first = torch.autograd.grad(out, (x, w), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(out, (x, w)), first)


def test_backward_twice_without_it_is_refused_as_in_eager() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    out = compiled(chain, x, w)(x, w).sum()
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def tripled_and_turned(x: Tensor) -> Tensor:
    return (x * 3).t()


def turned(x: Tensor) -> Tensor:
    return x.t() + 1


@pytest.mark.parametrize("function", [tripled_and_turned, turned])
@pytest.mark.parametrize("retained", [0, 2])
def test_backward_twice_of_what_saves_nothing(function: Callable[..., Any], retained: int) -> None:
    """Eager's multiplication keeps its factor, which is a constant of the compiled one."""
    x = leaf(3, 4)
    ends = []
    for call in (function, compiled(function, x)):
        out = call(x).sum()
        for _ in range(retained):
            out.backward(retain_graph=True)
        out.backward()
        try:
            out.backward()
            ends.append(False)
        except RuntimeError as error:
            ends.append("backward through the graph a second time" in str(error))
    assert ends == [function is tripled_and_turned] * 2


def test_gradients_accumulate() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    call = compiled(chain, x, w)
    call(x, w).sum().backward()
    call(x, w).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, 2 * torch.autograd.grad(chain(x, w).sum(), x)[0])


def test_hooks_of_inputs_run() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    call = compiled(chain, x, w)
    seen: list[Tensor] = []
    x.register_hook(seen.append)
    w.register_post_accumulate_grad_hook(seen.append)
    call(x, w).sum().backward()
    assert len(seen) == 2


def test_backward_in_another_thread() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    out = compiled(chain, x, w)(x, w).sum()
    thread = threading.Thread(target=out.backward)
    thread.start()
    thread.join()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.autograd.grad(chain(x, w).sum(), x)[0])


def test_backward_under_no_grad() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    out = compiled(chain, x, w)(x, w).sum()
    with torch.no_grad():
        out.backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.autograd.grad(chain(x, w).sum(), x)[0])


def test_double_backward_is_right_or_names_the_function() -> None:
    x, w = leaf(3, 4), leaf(4, 5)

    def second_order(fn: Callable[..., Any]) -> Tensor:
        (first,) = torch.autograd.grad(fn(x, w).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    expected = second_order(chain)
    try:
        found = second_order(compiled(chain, x, w))
    except RuntimeError as error:
        assert "chain" in str(error)  # noqa: PT017 - either outcome is right
    else:
        torch.testing.assert_close(found, expected)


def test_result_and_activations_are_freed() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    call = compiled(chain, x, w)
    gc.collect()
    gc.disable()
    try:
        out = call(x, w)
        watched = weakref.ref(out)
        node = weakref.ref(out.grad_fn) if out.grad_fn is not None else None
        del out
        assert watched() is None
        assert node is not None
        assert node() is None
    finally:
        gc.enable()


def test_arguments_are_not_kept_alive() -> None:
    x, w = plain(3, 4), leaf(4, 5)
    call = compiled(chain, x, w)
    call(x, w).sum().backward()
    watched = weakref.ref(x)
    del x
    gc.collect()
    assert watched() is None


def test_saved_input_changed_before_backward_is_refused_as_in_eager() -> None:
    def step(x: Tensor, w: Tensor) -> Tensor:
        return (x * w).sum()

    x, w = plain(3), leaf(3)
    out = step(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()
    out = compiled(step, x, w)(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_optimizer_changes_are_seen() -> None:
    model = nn.Linear(3, 2)
    x = plain(4, 3)
    call = compiled(model, x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss = call(x).square().mean()
        torch.testing.assert_close(loss, model(x).square().mean())
        loss.backward()
        optimizer.step()


def test_keyword_arguments_and_defaults() -> None:
    def step(x: Tensor, *, scale: Tensor, bias: float = 1.0) -> Tensor:
        return x * scale + bias

    x, scale = leaf(3), plain(3)
    torch.testing.assert_close(compiled(step, x, scale=scale)(x, scale=scale), step(x, scale=scale))


def test_view_of_input_is_linked_to_it() -> None:
    x = tape(3, 4)
    out = compiled(lambda x: x.view(-1), x)(x)
    assert out._base is x
    out.mul_(2)
    assert x.grad_fn is not None
    assert "CopySlices" in type(x.grad_fn).__name__


def test_an_input_without_gradient_may_have_a_used_tape() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return x.detach() * y

    x, y = torch.randn(3, requires_grad=True).sin(), torch.randn(3, requires_grad=True)
    x.sum().backward()
    compiled(fn, x, y)(x, y).sum().backward()
    torch.testing.assert_close(y.grad, x)


def test_a_moved_input_that_eager_does_not_keep_and_that_is_written_later() -> None:
    """Eager keeps `x + x` and not the input."""

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            x.unsqueeze_(0)
        doubled = x + x
        doubled.mul_(y)
        return doubled, x.view(-1)

    gradients = []
    for call in (fn, compiled(fn, tape(4, 4), leaf(4, 4))):
        torch.manual_seed(0)
        x, y = tape(4, 4), leaf(4, 4)
        doubled, flat = call(x, y)
        with torch.no_grad():
            flat.mul_(2)
        gradients.append(torch.autograd.grad(doubled.sum(), y)[0])
    torch.testing.assert_close(*gradients)


def test_several_threads_compile_at_once() -> None:
    call = aotlens.compile(lambda x: (x.sin() * 2).sum(), options=EAGER)
    found: list[Tensor] = []

    def run() -> None:
        x = torch.ones(3, requires_grad=True)
        call(x).backward()
        assert x.grad is not None
        found.append(x.grad)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 4
    assert all(torch.allclose(gradient, 2 * torch.ones(3).cos()) for gradient in found)


class CountsInBackward(CountsBothWays):
    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.state.mul_(2)
        return grads[0] * ctx.state, None


def counted(x: Tensor, state: Tensor) -> Tensor:
    return CountsInBackward.apply(x, state)


def test_a_backward_writes_to_the_input_as_it_finds_it() -> None:
    x, call = leaf(3), compiled(counted, leaf(3), plain(3))
    found = [_counts(fn, x, backwards) for fn in (counted, call) for backwards in ("two", "retained")]
    torch.testing.assert_close(found[2:], found[:2])


def _counts(fn: Callable[..., Any], x: Tensor, backwards: str) -> list[Any]:
    state = torch.ones(3)
    outs = [fn(x, state), fn(x, state)] if backwards == "two" else [fn(x, state)] * 2
    gradients = [torch.autograd.grad(out.sum(), x, retain_graph=out is outs[-1])[0] for out in outs]
    return [*gradients, state, state._version]


def test_threads_call_a_compiled_module_while_another_size_is_compiled() -> None:
    """The recording's tensors stand in the module meanwhile."""
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    f, x = aotlens.aot_module(model, aotlens.nop), torch.ones(2, 3)
    expected, done, found = model(x), threading.Event(), list[Any]()

    def call_again() -> None:
        while not done.is_set():
            try:
                found.append(f(x))
            except Exception as error:  # noqa: BLE001 (whatever a thread raises)
                found.append(error)

    f(x)
    thread = threading.Thread(target=call_again)
    thread.start()
    for rows in range(3, 9):
        f(torch.ones(rows, 3))
    done.set()
    thread.join()
    assert {torch.Tensor} == {type(one) for one in found}
    assert all(torch.equal(one, expected) for one in found)


def test_the_order_of_a_dictionary_is_seen() -> None:
    f = aotlens.aot_function(lambda given: [value * 2 for value in given.values()], aotlens.nop)
    one, two = torch.ones(1), torch.full((1,), 2.0)
    assert [float(value) for value in f({"b": one, "a": two})] == [2, 4]
    assert [float(value) for value in f({"a": two, "b": one})] == [4, 2]
