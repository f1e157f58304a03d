"""What a call costs over eager when there is next to nothing to compute, through public entry points on both
sides: `aotlens.aot_function` beside `functorch.compile.aot_function`, and `torch.compile` with the backends
"aotlens" and "aot_eager".

The functions are so small that the wrapper around the graph is what is measured.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import FunctionType

import torch
from functorch.compile import aot_function, nop
from torch import Tensor

import aotlens
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from benchmarks.harness import Cell, Samples, Table, arguments, publish, take_turns, time_loop

CALLS = 400
"""Calls in one measured loop."""
PARAMETERS = 50

Function = Callable[..., object]


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
    function: Function
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


def fresh(function: Function) -> Function:
    """Return the function with its own code object, by which Dynamo looks up compiled code."""
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__.replace(), function.__globals__, function.__name__)


def functorch_contenders(function: Function, arguments: tuple[object, ...]) -> Mapping[str, Function]:
    internal = compile_direct(function, arguments, {}, CompileOptions(backend="eager")).call
    return {
        "eager": function,
        "peer": aot_function(function, nop, nop),
        "ours": aotlens.aot_function(function, aotlens.nop, aotlens.nop),
        "internal": internal,
    }


def dynamo_contenders(function: Function, arguments: tuple[object, ...]) -> Mapping[str, Function]:
    """Return contenders with the same code generation on both sides: the graphs' own Python, no kernels."""
    return {
        "eager": function,
        "peer": torch.compile(fresh(function), backend="aot_eager"),
        "ours": torch.compile(fresh(function), backend="aotlens", options={"backend": "eager"}),
        "captured": torch.compile(fresh(function), backend="eager"),
    }


def first_tensor(result: object) -> Tensor:
    tensor = result[0] if isinstance(result, (tuple, list)) else result
    assert isinstance(tensor, Tensor)
    return tensor


def call(function: Function, arguments: tuple[object, ...], mode: str) -> Callable[[], object]:
    """Return one call in this mode; gradients are returned, not accumulated."""
    if mode != "forward+backward":
        return partial(function, *arguments)
    leaves = torch.utils._pytree.tree_leaves(arguments)
    inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    gradient = torch.ones(4)
    return lambda: torch.autograd.grad(first_tensor(function(*arguments)), inputs, gradient)


Contenders = Callable[[Function, tuple[object, ...]], Mapping[str, Function]]


def measure(make: Contenders, case: Case, mode: str, rounds: int) -> dict[str, Samples]:
    arguments = case.make_arguments(mode != "inference")
    functions = make(case.function, arguments)
    calls = {name: call(function, arguments, mode) for name, function in functions.items()}
    for ready in calls.values():
        time_loop(ready, CALLS)
    return take_turns({name: partial(time_loop, ready, CALLS) for name, ready in calls.items()}, rounds)


def row(case: Case, mode: str, samples: dict[str, Samples]) -> tuple[Cell, ...]:
    micros = {name: timing.median_s * 1e6 for name, timing in samples.items()}
    eager, peer = micros["eager"], micros["peer"]
    over = {name: (micros[name] - eager) / (peer - eager) for name in micros if name not in ("eager", "peer")}
    spread = f"±{samples['ours'].spread:.0%}"
    return case.name, mode, eager, peer, micros["ours"], spread, *over.values()


NOTE = (
    "Tensors of 4 elements, one thread; overhead is the time of a call less eager's. "
    f"CPU time, median of {{rounds}} loops of {CALLS} calls in turns, the garbage collector off."
)
COLUMNS = ("case", "mode", "eager µs", "peer µs", "ours µs", "spread", "overhead, ours / peer")


def main() -> None:
    options = arguments("per-call overhead beside functorch.compile and aot_eager", rounds=31)
    torch.set_num_threads(1)
    gc.freeze()  # collections between the loops then only scan new objects
    functorch_rows, dynamo_rows = (
        tuple(row(case, mode, measure(make, case, mode, options.rounds)) for case in CASES for mode in MODES)
        for make in (functorch_contenders, dynamo_contenders)
    )
    note = NOTE.format(rounds=options.rounds)
    direct = (
        "Ours is `aotlens.aot_function`, the peer `functorch.compile.aot_function`, each with its own `nop` "
        "as the compiler; the last column is the module text's `call` alone, which no user calls. "
        f"{note}"
    )
    dynamo = (
        'Ours is `torch.compile(backend="aotlens", options={"backend": "eager"})`, the peer '
        '`torch.compile(backend="aot_eager")`; Dynamo\'s guards and frames are in both. The last column is '
        f'`torch.compile(backend="eager")`, which runs the captured graph without any wrapper. {note}'
    )
    publish(
        "overhead",
        [
            Table("Per-call overhead, aot_function", (*COLUMNS, "text alone / peer"), functorch_rows, direct),
            Table("Per-call overhead, torch.compile", (*COLUMNS, "captured / peer"), dynamo_rows, dynamo),
        ],
    )


if __name__ == "__main__":
    main()
