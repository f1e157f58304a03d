"""Torchbind objects: C++ classes bound with `torch::class_`."""

from typing import Any

import pytest
import torch
from torch import Tensor

import aotlens
from tests.unsupported.example import EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


def tensor_queue() -> Any:
    """Return a queue of torch's own test library, which registers a class for tracing it."""
    from torch.testing._internal import torchbind_impls

    try:
        torchbind_impls.init_torchbind_implementations()
    except (OSError, RuntimeError) as error:
        pytest.skip(f"this build of torch has no torchbind test library: {error}")
    return torch.classes._TorchScriptTesting._TensorQueue(torch.empty(0))


@shows("torchbind-grad")
def queue_that_holds_a_gradient() -> None:
    tasks = tensor_queue()  # an object of a C++ class

    @aotlens.compile(options=EAGER)
    def delay(x: Tensor) -> Tensor:
        tasks.push(x)
        return tasks.pop()

    delay(torch.ones(3, requires_grad=True))


@shows("torchbind-number")
def length_of_a_queue() -> None:
    tasks = tensor_queue()  # an object of a C++ class

    @aotlens.compile(options=EAGER)
    def scale(x: Tensor) -> Tensor:
        return x * tasks.size()

    scale(torch.ones(3))


@shows("torchbind-class")
def packed_weight_of_a_layer() -> None:
    weight = torch.quantize_per_tensor(torch.ones(3, 3), 0.1, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, None)

    @aotlens.compile(options=EAGER)
    def dequantized(x: Tensor) -> Tensor:
        return x @ packed.unpack()[0].dequantize()

    dequantized(torch.ones(3))


@shows("torchbind-method")
def method_that_the_class_for_tracing_lacks() -> None:
    tasks = tensor_queue()  # an object of a C++ class

    @aotlens.compile(options=EAGER)
    def peek(x: Tensor) -> Tensor:
        tasks.push(x)
        return tasks.top()

    peek(torch.ones(3))
