"""The predicted peak of a training step, beside what torch's allocator gave out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from aotlens.build.memory import memory_of
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from benchmarks.allocations import forget_gradients, peak_bytes, training_step
from benchmarks.models import CONV_NET, Model, gpt_model
from benchmarks.peak import EXAMPLES, INFERENCE, POLICIES, example_gpt, predicted_and_measured

POLICY = pytest.mark.parametrize("policy", POLICIES)
SHARE = 0.05
"""How far the prediction may be off."""


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # some kernels have memory per thread
    yield
    torch.set_num_threads(before)


@pytest.mark.rotates
@POLICY
@pytest.mark.parametrize(
    "model", [example_gpt(2, 2), EXAMPLES[-1], gpt_model(2), CONV_NET], ids=lambda model: model.name
)
def test_peak_of_models(model: Model, policy: str) -> None:
    predicted, measured = predicted_and_measured(model, policy)
    assert predicted == pytest.approx(measured, rel=SHARE)


@pytest.mark.rotates
def test_peak_of_inference() -> None:
    predicted, measured = predicted_and_measured(INFERENCE, "min-cut", torch.no_grad())
    assert predicted == pytest.approx(measured, rel=SHARE)


def leaf(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(sizes, dtype=dtype, requires_grad=True)


@dataclass(frozen=True, slots=True)
class Case:
    """A function whose peak lies where its name says."""

    name: str
    function: Callable[..., Tensor]
    make: Callable[[], tuple[Tensor, ...]]


def squares(x: Tensor, weight: Tensor) -> Tensor:
    with torch.no_grad():
        scale = torch.cat([x @ weight] * 4).square().sum()
    return (x @ weight).relu().sum() * scale


def updated(x: Tensor, total: Tensor) -> Tensor:
    total.add_(1)
    return x.sin().sum()


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum()


def convolved(x: Tensor, weight: Tensor) -> Tensor:
    return functional.conv2d(x, weight, padding=1).relu().sum()


def strided(x: Tensor, weight: Tensor) -> Tensor:
    return functional.conv2d(x, weight, padding=1, stride=2).relu().sum()


def pointwise(x: Tensor, weight: Tensor) -> Tensor:
    return functional.conv1d(x, weight).relu().sum()


def depthwise(x: Tensor, weight: Tensor) -> Tensor:
    return functional.conv2d(x, weight, padding=1, groups=x.shape[1]).relu().sum()


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, weight, weight, training=True).relu().sum()


CASES = (
    Case("middle of the forward", squares, lambda: (leaf(64, 256), leaf(256, 256))),
    Case("copies of gradients", lambda x, y: (x + y).sum(), lambda: (leaf(64, 64), leaf(64, 64))),
    Case("a gradient given back", lambda x, y: x + y, lambda: (leaf(64, 64), leaf(64, 64))),
    Case("an update in place", updated, lambda: (leaf(8), torch.zeros(64, 64))),
    Case("another dtype", lambda x: (x * (x > 0)).sum(), lambda: (leaf(64, 512),)),
    Case("attention", attention, lambda: (leaf(2, 8, 64, 32), leaf(2, 8, 64, 32), leaf(2, 8, 64, 32))),
    Case("convolution", convolved, lambda: (leaf(8, 16, 32, 32), leaf(32, 16, 3, 3))),
    Case("convolution with a stride", strided, lambda: (leaf(8, 16, 33, 33), leaf(32, 16, 3, 3))),
    Case("convolution of 20 channels", convolved, lambda: (leaf(8, 20, 32, 32), leaf(24, 20, 3, 3))),
    Case("convolution of a picture", convolved, lambda: (torch.randn(8, 3, 32, 32), leaf(32, 3, 3, 3))),
    Case("convolution to one channel", pointwise, lambda: (leaf(16, 16, 128), leaf(1, 16, 1))),
    Case("convolution of each channel", depthwise, lambda: (leaf(8, 8, 32, 32), leaf(8, 1, 3, 3))),
    Case(
        "convolution in f64",
        convolved,
        lambda: (leaf(8, 16, 32, 32, dtype=torch.float64), leaf(32, 16, 3, 3, dtype=torch.float64)),
    ),
    Case("batch norm", normed, lambda: (leaf(8, 16, 32, 32), leaf(16))),
    Case("pooling", lambda x: functional.max_pool2d(x, 2).sum(), lambda: (leaf(4, 8, 64, 64),)),
    Case("views of one storage", lambda x: (x @ x).chunk(2)[0].sin().sum(), lambda: (leaf(64, 64),)),
    Case(
        "a draw that nobody uses", lambda x: (torch.rand_like(x), x.sin().sum())[1], lambda: (leaf(64, 64),)
    ),
)


@pytest.mark.rotates
@POLICY
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_peak_of_kernels(case: Case, policy: str) -> None:
    inputs = case.make()
    found = compile_direct(case.function, inputs, {}, CompileOptions(backend="eager", policy=policy))
    training_step(found.call, inputs)  # the first one fills caches of kernels
    forget_gradients(inputs)
    measured = peak_bytes(lambda: training_step(found.call, inputs))
    assert memory_of(found.parts).peak_bytes == pytest.approx(measured, rel=SHARE)


def two_layers(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    hidden = functional.gelu(x @ a)
    return (hidden @ b).sum()


def test_who_is_alive_at_the_peak() -> None:
    """At the last product of the backward, when two gradients are made already."""
    inputs = (leaf(8, 16), leaf(16, 32), leaf(32, 16))
    memory = memory_of(compile_direct(two_layers, inputs, {}, CompileOptions(backend="eager")).parts)
    assert (memory.peak_node, memory.peak_phase, memory.forward_nodes) == ("mm_5", "backward", 4)
    assert max(live for _, live in memory.curve) == memory.peak_bytes
    rows = [(row.node, row.bytes, row.kind, row.name, row.last) for row in memory.live_at_peak]
    assert rows == [
        ("mm_2", 32 * 16 * 4, "gradient", "gradient of b", None),
        ("mm_4", 16 * 32 * 4, "gradient", "gradient of a", None),
        ("gelu_backward", 8 * 32 * 4, "temporary", None, "mm_5"),
        ("mm_5", 8 * 16 * 4, "gradient", "gradient of x", None),
        ("sum", 4, "result", "out", None),
        ("tangent_out", 4, "incoming gradient", None, None),
    ]


def test_between_the_passes_saved_values_and_results_are_alive() -> None:
    inputs = (leaf(8, 16), leaf(16, 32), leaf(32, 16))
    found = compile_direct(two_layers, inputs, {}, CompileOptions(backend="eager"))
    assert memory_of(found.parts).held_bytes == found.parts.saved_bytes + 4
