"""What a step costs on a GPU: eager, torch.compile and aotlens, the latter two with Inductor.

Needs a GPU: `python -m benchmarks gpu` asks for it by name.  `python -m benchmarks.gpu --device cpu` runs the
same code on small sizes, prints, and keeps nothing.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from aotlens.frontends.dynamo import dynamo_backend
from aotlens.options import CompileOptions
from benchmarks.harness import Cell, Samples, Table, publish, show_cell, take_turns
from benchmarks.models import VOCABULARY, ConvNet
from examples.train_gpt import GPT, Config

TARGET = 1.02
"""The limit for aotlens' step as a multiple of torch.compile's."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the models, and the number of steps in one round."""

    layers: int
    width: int
    context: int
    batch: int
    blocks: int
    image: int
    chain: int
    steps: int


GPU = Size(layers=12, width=512, context=512, batch=8, blocks=16, image=64, chain=1 << 22, steps=20)
TINY = Size(layers=1, width=32, context=16, batch=2, blocks=1, image=8, chain=1 << 10, steps=2)


class Chain(nn.Module):
    """Pointwise operators between two sums, which fit into one kernel."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(length))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.sin(x * self.scale) + torch.sigmoid(y) * x.tanh()
            y = nn.functional.gelu(y) - 0.5 * x
        return (x * y).mean()


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]


def cases(size: Size) -> tuple[Case, ...]:
    config = Config(VOCABULARY, size.context, layers=size.layers, width=size.width, dropout=0.0)
    tokens = (size.batch, size.context)
    images = (4 * size.batch, 3, size.image, size.image)
    return (
        Case(
            f"pointwise chain, {size.chain:,} numbers",
            lambda: Chain(size.chain),
            lambda: (torch.randn(size.chain), torch.randn(size.chain)),
        ),
        Case(
            f"GPT, {size.layers} layers, width {size.width}",
            lambda: GPT(config),
            lambda: (torch.randint(VOCABULARY, tokens), torch.randint(VOCABULARY, tokens)),
        ),
        Case(
            f"conv net, {3 * size.blocks + 1} convolutions",
            lambda: ConvNet(size.blocks, 4 * 16),
            lambda: (torch.randn(images), torch.randint(10, images[:1])),
        ),
    )


def aotlens(policy: str) -> Callable[[nn.Module], Any]:
    backend = dynamo_backend(CompileOptions(backend="inductor", policy=policy))
    return lambda model: torch.compile(model, backend=backend)


CONTENDERS: dict[str, Callable[[nn.Module], Any]] = {
    "torch.compile": torch.compile,
    "aotlens": aotlens("min-cut"),
    "aotlens, policy default": aotlens("default"),
    "eager": lambda model: model,
}


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    size: Size

    def wait(self) -> None:
        if self.name == "cuda":
            torch.cuda.synchronize()


@dataclass(slots=True)
class Runner:
    """One contender on one case, built at its first step; mutable, because it records the build time."""

    case: Case
    make: Callable[[nn.Module], Any]
    device: Device
    first_s: float = 0.0
    peak_mib: float = 0.0

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        on_gpu = self.device.name == "cuda"
        before = torch.cuda.memory_allocated() if on_gpu else 0  # of the contenders that exist already
        self.model = self.case.make().to(self.device.name)
        self.inputs = [value.to(self.device.name) for value in self.case.inputs()]
        self.call = self.make(self.model)
        self.first_s = self._timed(self.step)
        self.forward()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
            self.step()
            self.device.wait()
            self.peak_mib = (torch.cuda.max_memory_allocated() - before) / 2**20

    model: Any = None
    inputs: Any = None
    call: Any = None

    def step(self) -> None:
        self.call(*self.inputs).backward()
        self.model.zero_grad(set_to_none=False)

    def forward(self) -> None:
        with torch.no_grad():
            self.call(*self.inputs)

    def timed_steps(self) -> float:
        return self._timed(self._repeated(self.step))

    def timed_forwards(self) -> float:
        return self._timed(self._repeated(self.forward))

    def _repeated(self, action: Callable[[], None]) -> Callable[[], None]:
        def repeat() -> None:
            for _ in range(self.device.size.steps):
                action()

        return repeat

    def _timed(self, action: Callable[[], object]) -> float:
        """Return wall time, with the device synchronised at both ends."""
        self.device.wait()
        started = time.perf_counter()
        action()
        self.device.wait()
        return time.perf_counter() - started


def measured_or_failed(case: Case, device: Device, rounds: int) -> list[tuple[Cell, ...]]:
    """Measure a case; one that fails becomes a row with the reason."""
    try:
        return measure(case, device, rounds)
    except Exception as error:  # noqa: BLE001 (whatever a GPU or a compiler says)
        traceback.print_exc()
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        return [(case.name, f"failed: {why}", *("" for _ in COLUMNS[2:]))]


def measure(case: Case, device: Device, rounds: int) -> list[tuple[Cell, ...]]:
    """Return one row per contender; they take turns, so that a busy machine slows all of them."""
    torch.compiler.reset()
    runners = {name: Runner(case, make, device) for name, make in CONTENDERS.items()}
    steps = take_turns({name: runner.timed_steps for name, runner in runners.items()}, rounds)
    forwards = take_turns({name: runner.timed_forwards for name, runner in runners.items()}, rounds)
    peer = next(iter(CONTENDERS))

    def cells(samples: dict[str, Samples], name: str) -> tuple[Cell, Cell]:
        per_call = samples[name].median_s / device.size.steps
        return round(per_call * 1000, 3), round(samples[name].median_s / samples[peer].median_s, 3)

    return [
        (
            case.name,
            name,
            *cells(forwards, name),
            *cells(steps, name),
            round(runner.first_s, 2),
            round(runner.peak_mib),
        )
        for name, runner in runners.items()
    ]


COLUMNS = ("case", "engine", "forward ms", "of peer", "step ms", "of peer", "first step s", "peak MiB")


def tables(device: Device, rounds: int) -> Iterator[Table]:
    """Yield the table after each case, so that a run that is stopped has published what it measured."""
    rows: list[tuple[Cell, ...]] = []
    for number, case in enumerate(cases(device.size), 1):
        rows += measured_or_failed(case, device, rounds)
        yield _table(device, rounds, rows, number)


def _table(device: Device, rounds: int, rows: list[tuple[Cell, ...]], case_count: int) -> Table:
    ours = [row for row in rows if row[1] == "aotlens"]
    within = all(float(share) <= TARGET for row in ours for share in (row[3], row[5]))
    met = within and len(ours) == case_count
    where = torch.cuda.get_device_name() if device.name == "cuda" else "a CPU, small sizes: a trial"
    note = (
        f"Wall time of a forward without gradients, and of forward and backward, float32; median of {rounds}"
        f" rounds of {device.size.steps} calls, contenders in turn; {where}. At most {TARGET} of"
        f" torch.compile: {'met' if met else 'not met'}."
    )
    return Table("Steps on a GPU", COLUMNS, tuple(rows), note)


def main() -> None:
    parser = argparse.ArgumentParser(description="steps on a GPU beside torch.compile", allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=7, help="turns for each contender")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--layers", type=int, help="of the GPT; fewer compile faster")
    parser.add_argument("--blocks", type=int, help="of the conv net, three convolutions each")
    options = parser.parse_args()
    size = TINY if options.device == "cpu" else GPU
    size = replace(size, layers=options.layers or size.layers, blocks=options.blocks or size.blocks)
    if options.device == "cpu":
        *_, result = tables(Device("cpu", size), options.rounds)
        for row in result.rows:
            Console().print("  ".join(map(show_cell, row)), highlight=False)
        Console().print(result.note, highlight=False)
        return
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU")
    torch.set_float32_matmul_precision("high")
    for result in tables(Device("cuda", size), options.rounds):
        publish("gpu", [result])


if __name__ == "__main__":
    main()
