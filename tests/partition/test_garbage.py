"""Partition functions leave no program of ours to the garbage collector, which would hold its tensors."""

import gc
from typing import Any

import torch
from functorch.compile import aot_function, nop
from torch import Tensor

from aotlens import default_partition
from aotlens.ir.program import Node


def _nodes() -> int:
    return sum(isinstance(item, Node) for item in gc.get_objects())


def test_division_frees_its_program_without_a_collection() -> None:
    alive: list[int] = []

    def divide(*args: Any, **kwargs: Any) -> Any:
        gc.collect()
        gc.disable()
        try:
            before = _nodes()
            modules = default_partition(*args, **kwargs)
            alive.append(_nodes() - before)
        finally:
            gc.enable()
        return modules

    def rows(x: Tensor) -> Tensor:
        return (x[1:].sin() * x.sum()).reshape(-1)

    compiled = aot_function(rows, nop, nop, partition_fn=divide)
    compiled(torch.ones(3, 2, requires_grad=True))
    assert alive == [0]
