"""Runs one program in eager and compiled, several times with different values, and lists what differs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from aotlens.errors import UnsupportedError
from aotlens.verify.compare import Difference, compare
from aotlens.verify.first_call import observe_alone
from aotlens.verify.observe import EVERYTHING, Facts, Observation, Probe
from aotlens.verify.world import World, copies, world
from tests.programs import Program

Compiler = Callable[[Callable[..., Any], tuple[Any, ...]], Callable[..., Any]]
"""Takes the callable and example arguments, gives a callable of the same signature."""


class Refused(Exception):  # noqa: N818 - an outcome of a check, not an error of it
    """The compiler refused the program with an error of its own."""


def check(program: Program, compiler: Compiler) -> tuple[Difference, ...]:
    """Every difference over three kinds of calls: the first, one with other values, and after writes."""
    with program.context():
        eager, compiled = prepared(program)
        expected = observe_alone(eager)
        call = compiled_by(compiler, compiled)
        found = observe_alone(compiled, call=call)
        differences = list(compare(found, expected).differences)
        for seed, probe in ((1, EVERYTHING), *((2, probe) for probe in writes_worth_trying(expected))):
            expected, found = again(program, (eager, compiled), call, probe, seed)
            differences += compare(found, expected).differences
    return tuple(differences)


def prepared(program: Program) -> tuple[World, World]:
    """Two worlds of the program's first call, for eager and for the compiled callable."""
    torch.manual_seed(0)
    with torch.enable_grad():
        first = world(program.make(), program.make_args())
    eager, compiled = copies(first)
    return eager, compiled


def compiled_by(compiler: Compiler, given: World) -> Callable[..., Any]:
    """Compiles on copies of the arguments, so that a change made while tracing is seen as a difference."""
    state = torch.get_rng_state()
    try:
        call = compiler(given.fn, given.args)
    except UnsupportedError as error:
        raise Refused(str(error)) from error
    assert torch.equal(state, torch.get_rng_state()), "compiling moved the random state"
    return call


def again(
    program: Program, worlds: tuple[World, World], call: Callable[..., Any], probe: Probe, seed: int
) -> tuple[Observation, Observation]:
    """Calls both once more on other values, each keeping its own state: (eager, compiled)."""
    torch.manual_seed(seed)
    with torch.enable_grad():
        args = program.make_args()
    (eager,) = copies(world(worlds[0].fn, args), 1, keep_fn=True)
    (compiled,) = copies(world(worlds[1].fn, args), 1, keep_fn=True)
    return observe_alone(eager, probe), observe_alone(compiled, probe, call)


def writes_worth_trying(seen: Observation) -> Iterator[Probe]:
    """One probe for each output whose in-place change may show in another tensor that has a gradient."""
    tensors = [output for output in seen.outputs if isinstance(output, Facts)]
    for index, output in enumerate(tensors):
        if output.value.is_floating_point() and output.shares and seen.gradients:
            yield Probe(writes=False, write_first=index)


def told(program: Program, differences: Sequence[Difference]) -> str:
    """A failure message: the program, then one difference a line."""
    return "\n".join([program.name, *(f"  {difference}" for difference in differences)])


def identity(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """The compiler that changes nothing."""
    return fn
