"""Peak memory of a training step: what the report predicts beside what torch's allocator gave out."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import nn

from aotlens.build.memory import memory_of
from aotlens.compiled import Compiled
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from benchmarks.allocations import forget_gradients, peak_bytes, training_step
from benchmarks.harness import Cell, Table, arguments, publish
from benchmarks.models import CONV_NET, ConvNet, Model, gpt_model
from examples.batchnorm_cnn import SIZE, ShapeNet
from examples.kv_cache import CONTEXT, CachedAttention
from examples.train_gpt import GPT, Config

POLICIES = ("min-cut", "default")
MIB = 1 << 20


def example_gpt(layers: int = 2, batch: int = 16) -> Model:
    """Return `examples/train_gpt.py` at its own sizes, dropout included."""
    config = Config(65, layers=layers)
    tokens = partial(torch.randint, 65, (2, batch, config.context))
    return Model(f"examples/train_gpt.py, {layers} layers", lambda: GPT(config), lambda: tuple(tokens()))


def cached_attention() -> tuple[torch.Tensor, ...]:
    """Return the arguments of one token with caches that the step mutates: inference under `no_grad`."""
    keys, values = torch.zeros(2, CONTEXT, 4, 8), torch.zeros(2, CONTEXT, 4, 8)
    return torch.randn(2, 1, 32), torch.tensor([3]), keys, values


EXAMPLES = (
    example_gpt(),
    example_gpt(6),
    Model("examples/batchnorm_cnn.py", ShapeNet, lambda: (torch.randn(32, 1, SIZE, SIZE),)),
)
INFERENCE = Model("examples/kv_cache.py, inference", lambda: CachedAttention(32, 4), cached_attention)
LARGE_CONV_NET = Model(
    "conv net, 8 images of 64 × 64",
    lambda: ConvNet(4, 32),
    lambda: (torch.randn(8, 3, 64, 64), torch.randint(10, (8,))),
)
MODELS = (*EXAMPLES, gpt_model(3), gpt_model(12), CONV_NET, LARGE_CONV_NET)


def compiled(model: nn.Module, inputs: tuple[object, ...], policy: str) -> Compiled:
    return compile_direct(model, inputs, {}, CompileOptions(backend="eager", policy=policy))


def predicted_and_measured(
    model: Model, policy: str, mode: AbstractContextManager[object] | None = None
) -> tuple[int, int]:
    """Return the bytes at the peak of the second step: the first one fills caches of kernels."""
    torch.manual_seed(0)
    with mode or nullcontext():
        module, inputs = model.make(), model.inputs()
        target = compiled(module, inputs, policy)
        training_step(target.call, inputs)
        forget_gradients(module.parameters())
        measured = peak_bytes(lambda: training_step(target.call, inputs))
    return memory_of(target.parts).peak_bytes, measured


def rows() -> Iterator[tuple[Cell, ...]]:
    for model in MODELS:
        for policy in POLICIES:
            predicted, measured = predicted_and_measured(model, policy)
            yield model.name, policy, predicted / MIB, measured / MIB, predicted / measured
    predicted, measured = predicted_and_measured(INFERENCE, "min-cut", torch.no_grad())
    yield INFERENCE.name, "", predicted / MIB, measured / MIB, predicted / measured


def main() -> None:
    arguments(__doc__ or "", rounds=1)
    torch.set_num_threads(1)
    columns = ("case", "policy", "predicted MiB", "measured MiB", "predicted / measured")
    note = (
        "A training step on the CPU, backend eager, from the call to the end of the backward: activations, "
        "results, gradients and what kernels take while they run, without arguments and parameters. Measured "
        "as torch's profiler sees torch's allocator; predicted from the graphs alone, without running them."
    )
    publish("peak", [Table("Peak memory of a training step", columns, tuple(rows()), note)])


if __name__ == "__main__":
    main()
