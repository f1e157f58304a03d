"""Dynamo's graph, run in eager, has the numbers of the function that it was captured from."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from aotlens.eager.checkpointed_graph import SecondWrites, eager_graph

torch.manual_seed(0)
FIRST = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
SECOND = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))


def saves_matmuls(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    is_matmul = op is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if is_matmul else CheckpointPolicy.PREFER_RECOMPUTE


def plain(x: Tensor) -> Tensor:
    return checkpoint(SECOND, FIRST(x), use_reentrant=False)


def selective(x: Tensor) -> Tensor:
    contexts = partial(create_selective_checkpoint_contexts, saves_matmuls)
    return checkpoint(SECOND, FIRST(x), use_reentrant=False, context_fn=contexts)


def nested(x: Tensor) -> Tensor:
    return checkpoint(plain, x, use_reentrant=False)


def with_keywords(x: Tensor) -> Tensor:
    def scaled(x: Tensor, scale: Tensor) -> Tensor:
        return SECOND(x) * scale

    return checkpoint(scaled, x, scale=x.sum(), use_reentrant=False, preserve_rng_state=True)


LINEAR, BATCH_NORM = nn.Linear(8, 8), nn.BatchNorm1d(8)
NORM = nn.Sequential(LINEAR, BATCH_NORM)


def counting(x: Tensor) -> Tensor:
    return checkpoint(NORM, x, use_reentrant=False)


def step(fn: Callable[[Tensor], Tensor]) -> list[Tensor]:
    torch.manual_seed(7)
    FIRST.zero_grad()
    SECOND.zero_grad()
    x = torch.ones(4, 8, requires_grad=True)
    result = fn(x)
    result.square().sum().backward()
    weights = [*FIRST.parameters(), *SECOND.parameters()]
    return [
        tensor.clone()
        for tensor in (result.detach(), x.grad, *(w.grad for w in weights))
        if tensor is not None
    ]


@pytest.mark.parametrize("function", [plain, selective, nested, with_keywords])
def test_recomputes_with_the_random_numbers_of_the_forward(function: Callable[[Tensor], Tensor]) -> None:
    captured: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        captured.append(graph)
        return eager_graph(graph).forward

    torch._dynamo.reset()
    found, expected = step(torch.compile(function, backend=backend)), step(function)
    assert len(captured) == 1
    for ours, eager in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)
    assert "tag_activation_checkpoint" in captured[0].print_readable(print_output=False)


@pytest.mark.parametrize(
    "write",
    [
        lambda count: count.add_(1),
        lambda count: torch.ops.aten.add_(count, 1),
        lambda count: operator.iadd(count, 1),
        lambda count: operator.setitem(count, 0, 3),
        torch.relu_,
    ],
)
def test_a_tensor_that_the_checkpointed_function_writes_to(write: Callable[[Tensor], object]) -> None:
    """`checkpoint` does not take it for an argument that somebody changed."""
    count = torch.ones(2)

    def counting(x: Tensor) -> Tensor:
        def inner(x: Tensor) -> Tensor:
            write(count)
            return (x * 2).sin() * count.detach().clone()[0].sign()

        return checkpoint(inner, x, use_reentrant=False)

    torch._dynamo.reset()
    x = torch.ones(3, requires_grad=True)
    compiled = torch.compile(counting, backend=lambda graph, inputs: eager_graph(graph).forward)
    compiled(x).sum().backward()
    gradient, x.grad = x.grad, None
    counting(x).sum().backward()
    assert gradient is not None
    assert x.grad is not None
    assert torch.equal(gradient, x.grad)


def test_batch_norm_in_a_checkpoint() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(counting, backend=lambda graph, inputs: eager_graph(graph).forward)
    x = torch.randn(4, 8, requires_grad=True)
    states = []
    for function in (compiled, counting):
        LINEAR.reset_parameters()
        BATCH_NORM.reset_parameters()
        function(x).sum().backward()
        states.append(int(BATCH_NORM.get_buffer("num_batches_tracked")))
    assert states == [2, 2]  # eager counts the recomputation too


def test_a_comparison_leaves_the_second_writes_of_a_checkpoint_out() -> None:
    torch._dynamo.reset()
    second_writes = SecondWrites()
    compiled = torch.compile(
        counting, backend=lambda graph, inputs: eager_graph(graph, second_writes).forward
    )
    x = torch.randn(4, 8, requires_grad=True)
    BATCH_NORM.reset_parameters()
    compiled(x).sum().backward()
    assert int(BATCH_NORM.get_buffer("num_batches_tracked")) == 1
    assert second_writes.number == 3  # the count, the mean and the variance


def test_a_comparison_makes_no_calls_that_a_selective_checkpoint_counts() -> None:
    def selective(x: Tensor) -> Tensor:
        contexts = partial(create_selective_checkpoint_contexts, saves_matmuls)
        return checkpoint(NORM, x, use_reentrant=False, context_fn=contexts)

    torch._dynamo.reset()
    compiled = torch.compile(
        selective, backend=lambda graph, inputs: eager_graph(graph, SecondWrites()).forward
    )
    gradients = []
    for function in (compiled, selective):
        x = torch.arange(32.0).reshape(4, 8).requires_grad_()
        function(x).square().sum().backward()
        gradients.append(x.grad)
    first, second = gradients
    assert first is not None
    assert second is not None
    assert torch.equal(first, second)


def test_a_graph_without_checkpoints_is_itself() -> None:
    graph = fx.symbolic_trace(lambda x: x + 1)
    assert eager_graph(graph) is graph
