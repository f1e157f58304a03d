"""Torchbind objects: their methods run once per call, in order, and never while a function is traced."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.errors import BackendError, UnsupportedError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct, compile_graph_module

impls = pytest.importorskip("torch.testing._internal.torchbind_impls")


@pytest.fixture(scope="module", autouse=True)
def classes() -> Any:
    """The classes that torch brings for its own tests, with their twins for tracing."""
    try:
        impls.init_torchbind_implementations()
    except (OSError, RuntimeError) as error:
        pytest.skip(f"this build of torch has no torchbind test library: {error}")
    return torch.classes._TorchScriptTesting


def queue() -> Any:
    return torch.classes._TorchScriptTesting._TensorQueue(torch.empty(0).fill_(-1))


def foo() -> Any:
    return torch.classes._TorchScriptTesting._Foo(3, 4)


def through_a_queue(x: Tensor, tasks: Any) -> Any:
    tasks.push(x.detach() * 2)
    tasks.push(x.detach() + 1)
    return x * tasks.pop() - tasks.pop()


def through_operators(x: Tensor, tasks: Any) -> Any:
    ops = torch.ops._TorchScriptTesting
    ops.queue_push(tasks, x.detach().sin())
    ops.queue_push(tasks, x.detach().cos())
    return ops.queue_pop(tasks) - ops.queue_pop(tasks) * x


def _direct(function: Any, args: Any) -> Any:
    return compile_direct(function, args, {}, CompileOptions(backend="eager")).call


def _behind_dynamo(function: Any, args: Any) -> Any:
    def backend(gm: Any, example_inputs: Any) -> Any:
        return compile_graph_module(gm, example_inputs, CompileOptions(backend="eager")).call

    torch._dynamo.reset()
    return torch.compile(function, backend=backend, fullgraph=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compiler", [_direct, _behind_dynamo])
@pytest.mark.parametrize("function", [through_a_queue, through_operators])
def test_an_object_that_is_an_argument(function: Any, compiler: Callable[..., Any]) -> None:
    tasks, x = queue(), torch.randn(3, requires_grad=True)
    call = compiler(function, (x, tasks))
    assert tasks.size() == 0
    for value in (x, x.detach().neg().requires_grad_()):
        expected, found = function(value, queue()), call(value, tasks)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(*(torch.autograd.grad(out.sum(), value) for out in (found, expected)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compiler", [_direct, _behind_dynamo])
def test_an_object_that_the_function_reaches_by_itself(compiler: Callable[..., Any]) -> None:
    tasks, numbers, x = queue(), foo(), torch.randn(3)

    def function(x: Tensor) -> Any:
        tasks.push(numbers.add_tensor(x.sin()))
        return tasks.pop() * 1

    call = compiler(function, (x,))
    tasks.push(x.clone())
    torch.testing.assert_close(call(x), x * 1)
    assert tasks.size() == 1
    torch.testing.assert_close(tasks.pop(), numbers.add_tensor(x.sin()))


def test_a_call_given_behind_a_token() -> None:
    numbers, x = foo(), torch.randn(3)

    def function(x: Tensor) -> Any:
        call = torch.ops.higher_order.call_torchbind
        return torch.ops.higher_order.with_effects(torch.empty(0), call, numbers, "add_tensor", x)[1]

    torch.testing.assert_close(_direct(function, (x,))(x), x * 7)


def test_the_report_shows_the_call_and_its_line() -> None:
    compiled = compile_direct(through_a_queue, (torch.randn(3), queue()), {}, CompileOptions(backend="eager"))
    (stage,) = [stage for stage in compiled.target().stages if stage.name == "inference"]
    calls = [node for node in stage.nodes if node.target == "call_torchbind"]
    assert [node.spans[0].line for node in calls] == [36, 37, 38, 38]
    assert compiled.target().inputs[1].name == "tasks"


def test_what_an_object_may_keep_with_its_history_is_refused() -> None:
    numbers = foo()
    with pytest.raises(
        UnsupportedError, match=r"requires grad, given to a torchbind object.*detach it first"
    ):
        _direct(lambda x: numbers.add_tensor(x) * 2, (torch.randn(3, requires_grad=True),))


def test_a_class_without_a_twin_is_refused_by_name() -> None:
    scale = torch.classes._TorchScriptTesting._StackString(["a", "b"])
    with pytest.raises(UnsupportedError, match=r"_StackString.*register_fake_class"):
        _direct(lambda x: x * len(scale.pop()), (torch.randn(3),))


@pytest.mark.parametrize(
    "function",
    [lambda x, tasks: x * tasks.size(), lambda x, tasks: x * torch.ops._TorchScriptTesting.queue_size(tasks)],
)
def test_a_number_from_an_object_is_refused_since_it_would_be_built_in(function: Any) -> None:
    with pytest.raises(UnsupportedError, match="a number that a torchbind object returns"):
        _direct(function, (torch.randn(3), queue()))


def in_turns(x: Tensor, tasks: Any) -> Any:
    tasks.push(x.detach() * 2)
    first = tasks.pop()
    tasks.push(first + 1)
    tasks.push(x.detach().exp())
    return x * first - tasks.pop() * tasks.pop()


def only_kept(x: Tensor, tasks: Any) -> Any:
    tasks.push(x.detach() * 2)
    return (x * 2 + 1).sin().cos()


@pytest.mark.rotates
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [through_a_queue, through_operators, in_turns, only_kept])
@pytest.mark.parametrize("wants_grad", [False, True])
def test_inductor_keeps_the_order_of_calls_and_the_memory_that_objects_hold(
    function: Any, wants_grad: bool
) -> None:
    found, expected, x = queue(), queue(), torch.randn(3, requires_grad=wants_grad)
    call = compile_direct(function, (x, found), {}, CompileOptions(backend="inductor")).call
    for value in (x, x.detach().neg().requires_grad_(wants_grad)):
        results = call(value, found), function(value, expected)
        torch.testing.assert_close(*results)
        if wants_grad:
            torch.testing.assert_close(*(torch.autograd.grad(out.sum(), value) for out in results))
    while expected.size():
        torch.testing.assert_close(found.pop(), expected.pop())
    assert found.size() == 0


def test_inductor_refuses_an_object_that_the_function_reaches_by_itself() -> None:
    numbers = foo()
    with pytest.raises(BackendError, match=r"torchbind object that is a free variable.*as an argument"):
        compile_direct(
            lambda x: numbers.add_tensor(x) * 2, (torch.randn(3),), {}, CompileOptions(backend="inductor")
        )
