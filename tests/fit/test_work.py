"""The work of operators, and the time that a GPU's data sheet gives for it."""

import pytest
import torch

from aotlens.fit.work import HOST_GB_PER_S, WorkCounter
from aotlens.model.gpus.names import find_target

aten = torch.ops.aten


def counted(func: object, *args: torch.Tensor, result: torch.Tensor, gpu: str | None = "t4") -> WorkCounter:
    counter = WorkCounter(None if gpu is None else find_target(gpu))
    counter.count(func, args, {}, result, list(args))
    return counter


def test_an_operator_takes_its_traffic_or_its_arithmetic() -> None:
    target, square = find_target("t4"), torch.empty(1024, 1024, device="meta", dtype=torch.float16)
    added = counted(aten.add.Tensor, square, square, result=square).total
    assert added.microseconds == pytest.approx(3 * 2 * 1024**2 / (target.bandwidth_gb_per_s * 1e3))
    product = counted(aten.mm.default, square, square, result=square).total
    assert product.flops == 2 * 1024**3
    assert product.microseconds == pytest.approx(2 * 1024**3 / target.peak_flops("f16", "matrix") * 1e6)


def test_a_copy_between_devices_takes_the_time_of_the_bus() -> None:
    there, here = torch.empty(1000, device="meta"), torch.empty(1000)
    copied = counted(aten._to_copy.default, there, result=here).total
    assert copied.microseconds == pytest.approx(4000 / (HOST_GB_PER_S * 1e3))


def test_without_a_gpu_and_for_views_there_is_no_time() -> None:
    row = torch.empty(1000)
    assert counted(aten.add.Tensor, row, row, result=row, gpu=None).total.microseconds == 0
    assert counted(aten.view.default, row, result=row).total.operators == 0
