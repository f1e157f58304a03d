"""Measure what listening to Dynamo costs, and how much of the wall time of first calls it accounts for.

    python scripts/why/cost.py cost [--backend eager] [--runs 30]
    python scripts/why/cost.py share [--eager] [GROUP/NAME…]

`cost` compiles one network with and without the listener, in turns, in one process, and compares the CPU
times.  `share` runs programs of the corpus and measures from outside each call of a compiled function that
compiles something; with their own backends, or with the backend `eager`.
"""

import argparse
import contextlib
import gc
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from aotlens.dynamo.listener import Listener
from aotlens.forecast.fork import ForkError, in_fork
from aotlens.forecast.probe import with_eager_backend
from aotlens.session.script.source import load_script, new_module, run_script
from aotlens.torch_api.patches.compilers import WRAP_COMPILED
from aotlens.torch_api.patches.scopes import patched
from corpus import torchvision_ops
from corpus.program import Program, find_programs

LAYERS, WIDTH = 12, 32
COUNTED = 3
"""The compilations of one block with or without the listener that are counted."""
SECONDS = 1800.0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("cost", "share"))
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("programs", nargs="*", metavar="GROUP/NAME")
    arguments = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    if arguments.what == "cost":
        print_cost(arguments.backend, arguments.runs)
        return 0
    torchvision_ops.install()
    for program in find_programs(tuple(arguments.programs)):
        try:
            print(program.name, in_fork(lambda program=program: share(program, arguments.eager), SECONDS))
        except ForkError as error:
            print(program.name, error)
    return 0


def print_cost(backend: str, runs: int) -> None:
    pairs = []
    for number in range(runs):
        order = (False, True) if number % 2 else (True, False)
        seconds = {is_listening: cpu_seconds(backend, is_listening) for is_listening in order}
        pairs.append((seconds[False], seconds[True]))
    without, listening = (statistics.fmean(side) for side in zip(*pairs, strict=True))
    ratios = [math.log(second / first) for first, second in pairs]
    error = statistics.stdev(ratios) / math.sqrt(runs)
    print(f"{backend}: {without * 1000:.0f} ms of CPU time without, {listening * 1000:.0f} ms with")
    print(f"ratio of the means {listening / without - 1:+.1%}, standard error {error:.1%}, {runs} pairs")


def cpu_seconds(backend: str, is_listening: bool) -> float:
    """Return the mean CPU time of compiling the network and of its first call.

    The first compilation is not counted: Python adapts its bytecode to the functions that are replaced.
    """
    with Listener().listening() if is_listening else nullcontext():
        times = [compile_seconds(backend) for _ in range(1 + COUNTED)]
    return statistics.fmean(times[1:])


def compile_seconds(backend: str) -> float:
    torch._dynamo.reset()
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = torch.compile(nn.Sequential(*layers), backend=backend)
    inputs = torch.ones(8, WIDTH)
    gc.collect()
    start = time.process_time()
    model(inputs)
    return time.process_time() - start


def share(program: Program, is_eager: bool) -> str:
    """Return how much of the wall time of compiling calls the listener's phases are."""
    listener, windows = Listener(), Windows()

    def wrapped(function: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with windows.window(listener):
                return compiled(*args, **kwargs)

        return call

    script = load_script(str(program.path))
    backend = with_eager_backend() if is_eager else nullcontext()
    with backend, patched(WRAP_COMPILED, wrapped), listener.listening(), contextlib.suppress(SystemExit):
        run_script(script, new_module(script, "__main__"), program.args)
    wall, known = windows.wall, windows.known
    return f"{known:.2f} of {wall:.2f} s ({known / max(wall, 1e-9):.1%}) in {windows.count} calls"


@dataclass(slots=True)
class Windows:
    """The calls that compiled something; mutable."""

    wall: float = 0.0
    known: float = 0.0
    """The part of it in phases."""
    count: int = 0
    is_inside: bool = False

    @contextmanager
    def window(self, listener: Listener) -> Iterator[None]:
        """Note the wall time of the block, and the part of it in phases, if something is compiled in it."""
        if self.is_inside:
            yield
            return
        compiled, known, start = compilations(listener), seconds_of(listener), time.perf_counter()
        self.is_inside = True
        try:
            yield
        finally:
            self.is_inside = False
        wall = time.perf_counter() - start
        if compilations(listener) > compiled:
            self.wall, self.known, self.count = (
                self.wall + wall,
                self.known + seconds_of(listener) - known,
                self.count + 1,
            )


def compilations(listener: Listener) -> int:
    return sum(len(facts.compilations) for facts in listener.functions.values())


def seconds_of(listener: Listener) -> float:
    return sum(listener.clock.by_phase.values())


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
