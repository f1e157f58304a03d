"""What a training step costs on a GPU: eager, torch.compile and aotlens, both with Inductor.

Needs a GPU: `python -m benchmarks gpu` asks for it by name.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from aotlens.frontends.dynamo import dynamo_backend
from aotlens.options import CompileOptions
from benchmarks.harness import Cell, Table, arguments, publish
from benchmarks.models import VOCABULARY
from examples.train_gpt import GPT, Config

LAYERS, WIDTH, CONTEXT, BATCH, STEPS = 12, 512, 512, 8, 20


def model() -> GPT:
    torch.manual_seed(0)
    config = Config(VOCABULARY, context=CONTEXT, layers=LAYERS, width=WIDTH, dropout=0.0)
    return GPT(config).cuda()


def contenders() -> dict[str, Callable[[GPT], Any]]:
    """How each one makes a callable of the model."""
    return {
        "eager": lambda made: made,
        "torch.compile": torch.compile,
        "aotlens, policy default": lambda made: torch.compile(made, backend=aotlens("default")),
        "aotlens, policy min-cut": lambda made: torch.compile(made, backend=aotlens("min-cut")),
    }


def aotlens(policy: str) -> Callable[..., Any]:
    return dynamo_backend(CompileOptions(backend="inductor", policy=policy))


def measure(make: Callable[[GPT], Any], rounds: int) -> tuple[float, float, float]:
    """(seconds of the first step, median milliseconds of a step, peak MiB of a step)."""
    torch.compiler.reset()
    made = model()
    call = make(made)
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), device="cuda")
    ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step() -> None:
        call(ids, targets).backward()
        made.zero_grad(set_to_none=False)

    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - started
    step()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - started) / STEPS * 1000)
    return first, sorted(times)[len(times) // 2], torch.cuda.max_memory_allocated() / 2**20


def main() -> None:
    options = arguments("training step on a GPU beside torch.compile", rounds=5)
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU")
    rows: list[tuple[Cell, ...]] = []
    for name, make in contenders().items():
        first, step_ms, peak = measure(make, options.rounds)
        rows.append((name, round(first, 2), round(step_ms, 3), round(peak)))
    note = (
        f"GPT of {LAYERS} layers, width {WIDTH}, {BATCH} × {CONTEXT} tokens, float32; wall time, "
        f"forward and backward; {torch.cuda.get_device_name()}."
    )
    columns = ("engine", "first step s", "step ms", "peak MiB")
    publish("gpu", [Table("Training step on a GPU", columns, tuple(rows), note)])


if __name__ == "__main__":
    main()
