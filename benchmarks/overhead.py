"""What a call costs over eager when there is next to nothing to compute: ours beside
`functorch.compile.aot_function`.

The functions are so small that the wrapper around the graph is what is measured.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from functorch.compile import aot_function, nop
from torch import Tensor

from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from benchmarks.harness import Cell, Table, arguments, publish, take_turns, time_loop

CALLS = 400
"""Calls in one measured loop."""
PARAMETERS = 50


def plain(x: Tensor, y: Tensor) -> Tensor:
    return x.sin() + y


def mutated_buffer(x: Tensor, y: Tensor, buffer: Tensor) -> Tensor:
    buffer.add_(1)
    return x.sin() + y


def aliased_output(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin() + y, x.view(2, 2)


def many_parameters(x: Tensor, parameters: list[Tensor]) -> Tensor:
    for parameter in parameters:
        x = x * parameter
    return x


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    function: Callable[..., object]
    make_arguments: Callable[[bool], tuple[object, ...]]
    """Arguments for training (True) or inference."""


def pair(training: bool) -> tuple[Tensor, Tensor]:
    return torch.randn(4, requires_grad=training), torch.randn(4, requires_grad=training)


def pair_and_buffer(training: bool) -> tuple[Tensor, ...]:
    return *pair(training), torch.zeros(4)


def one_and_parameters(training: bool) -> tuple[Tensor, list[Tensor]]:
    return torch.randn(4), [torch.ones(4, requires_grad=training) for _ in range(PARAMETERS)]


CASES = (
    Case("plain", plain, pair),
    Case("one mutated buffer", mutated_buffer, pair_and_buffer),
    Case("one aliased output", aliased_output, pair),
    Case(f"{PARAMETERS} parameters", many_parameters, one_and_parameters),
)
MODES = ("inference", "forward", "forward+backward")


def first_tensor(result: object) -> Tensor:
    found = result[0] if isinstance(result, (tuple, list)) else result
    assert isinstance(found, Tensor)
    return found


def call(function: Callable[..., object], arguments: tuple[object, ...], mode: str) -> Callable[[], object]:
    """One call as the mode has it; gradients are asked for rather than accumulated."""
    if mode != "forward+backward":
        return partial(function, *arguments)
    leaves = torch.utils._pytree.tree_leaves(arguments)
    wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    gradient = torch.ones(4)
    return lambda: torch.autograd.grad(first_tensor(function(*arguments)), wanted, gradient)


def measure(case: Case, mode: str, rounds: int) -> tuple[Cell, ...]:
    arguments = case.make_arguments(mode != "inference")
    functions: dict[str, Callable[..., object]] = {
        "eager": case.function,
        "peer": aot_function(case.function, nop, nop),
        "ours": compile_direct(case.function, arguments, {}, CompileOptions(backend="eager")).call,
    }
    calls = {name: call(function, arguments, mode) for name, function in functions.items()}
    for ready in calls.values():
        time_loop(ready, CALLS)
    samples = take_turns({name: partial(time_loop, ready, CALLS) for name, ready in calls.items()}, rounds)
    eager, peer, ours = (samples[name].median_s * 1e6 for name in functions)
    spread = f"±{samples['ours'].spread:.0%}"
    return case.name, mode, eager, peer, ours, spread, (ours - eager) / (peer - eager)


def main() -> None:
    options = arguments("per-call overhead beside functorch.compile", rounds=15)
    torch.set_num_threads(1)
    gc.freeze()  # collections between the loops then look at what is new only
    rows = tuple(measure(case, mode, options.rounds) for case in CASES for mode in MODES)
    columns = ("case", "mode", "eager µs", "peer µs", "ours µs", "spread", "overhead, ours / peer")
    note = (
        "Tensors of 4 elements, one thread; overhead is the time of a call less eager's. "
        f"CPU time, median of {options.rounds} loops of {CALLS} calls in turns, the garbage collector off."
    )
    publish("overhead", [Table("Per-call overhead", columns, rows, note)])


if __name__ == "__main__":
    main()
