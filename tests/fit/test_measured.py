"""The step's peak as predicted on fake tensors, beside what torch's CPU allocator gave out."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from aotlens.fit.observer import observing_memory
from aotlens.fit.step import fit_of
from aotlens.torch_api.fake.tensors import FakeTensorMode
from aotlens.torch_api.operators import packs_products
from benchmarks.allocations import peak_bytes

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, foreach=False),
    "SGD, foreach": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, foreach=True),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    "AdamW, foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
}


def training(optimizer_of: Callable[[Any], torch.optim.Optimizer], rows: int) -> Iterator[None]:
    """Each step of a small network."""
    network = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 16))
    optimizer = optimizer_of(network.parameters())
    inputs, classes = torch.randn(rows, 64), torch.zeros(rows, dtype=torch.int64)
    while True:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs), classes).backward()
        optimizer.step()
        yield


def three_steps(name: str, rows: int) -> Iterator[None]:
    """The network and its optimizer stay alive as long as the iterator does."""
    steps = training(OPTIMIZERS[name], rows)
    for _ in range(3):
        next(steps)
    return steps


@pytest.mark.rotates
@pytest.mark.parametrize("rows", [8, 512])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_prediction_is_within_5_percent_of_the_allocator(name: str, rows: int) -> None:
    """The profiler sees the script from its start on: it passes over releases of what is older."""
    with FakeTensorMode(), observing_memory() as observer:
        steps = three_steps(name, rows)
        predicted = fit_of(observer).step_peak_bytes
        del steps
    assert predicted == pytest.approx(peak_bytes(lambda: three_steps(name, rows)), rel=0.05)


@pytest.mark.rotates
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(64, 20, 64), (64, 64, 3), (512, 33, 128), (8, 1024, 64), (16, 16, 16)]
)
def test_memory_of_16_bit_products_is_exact_on_one_thread(
    rows: int, inner: int, columns: int, dtype: torch.dtype
) -> None:
    if dtype is torch.bfloat16 and packs_products(dtype):
        pytest.skip("what oneDNN allocates for bfloat16 is estimated")

    def product() -> torch.Tensor:
        return torch.ones(rows, inner, dtype=dtype) @ torch.ones(inner, columns, dtype=dtype)

    with FakeTensorMode(), observing_memory() as observer:
        output = product()
        predicted = fit_of(observer).step_peak_bytes
        del output
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        product()
        assert predicted == peak_bytes(product)
    finally:
        torch.set_num_threads(threads)
