"""Runs one program in eager and compiled, several times with different values, and lists what differs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from aotlens.errors import AotlensError
from aotlens.verify.compare import Difference, compare
from aotlens.verify.observe import EVERYTHING, Failure, Observation, Probe, TensorFacts, observe_alone
from aotlens.verify.tensors.prepared_call import PreparedCall, callable_tensors, copies, prepare_call
from tests.programs import Program
from tests.programs.program import grown

Compiler = Callable[[Callable[..., Any], tuple[Any, ...]], Callable[..., Any]]
"""Takes the callable and example arguments, gives a callable of the same signature."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program fared."""

    differences: tuple[Difference, ...]
    refusal: AotlensError | None = None
    """The error that the compiler raised on purpose; None when it compiled."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """One further call of both sides."""

    seed: int
    probe: Probe = EVERYTHING
    untold: bool = False
    """Whether what the probe writes first may be written without autograd's being told (`.data`)."""
    sizes: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True, slots=True)
class EagerCall:
    """A further call in eager, which every compiled callable is compared with."""

    repeat: Repeat
    seen: Observation
    has_freed_history: bool
    """Whether the callable's own state had an autograd graph that an earlier backward may have freed."""


class EagerRun:
    """What a program does in eager, observed once, at the first question.

    The calls that grow come last: a program that is also compared without them has the same state before.
    """

    def __init__(self, program: Program, *, grow: bool = False, writes_are_told: bool = True) -> None:
        self.program = program
        self._grow = grow
        self._writes_are_told = writes_are_told

    @cached_property
    def _world(self) -> PreparedCall:
        return _made(self.program)

    @cached_property
    def first(self) -> Observation:
        """The first call."""
        with self.program.context():
            return observe_alone(self._world)

    @property
    def fails(self) -> bool:
        """Return True if the first call, or its backward, raises."""
        return self.first.failure is not None or self.first.backward_failure is not None

    @cached_property
    def calls(self) -> tuple[EagerCall, ...]:
        """The calls after the first, as far as they can show something new."""
        first = self.first
        with self.program.context():
            return tuple(map(self._again, repeats(first, self._grow, self._writes_are_told)))

    def _again(self, repeat: Repeat) -> EagerCall:
        state = callable_tensors(self._world.fn)
        has_freed_history = any(item.tensor.grad_fn is not None for item in state)
        again = _again(self.program, self._world, repeat)
        return EagerCall(repeat, observe_alone(again, repeat.probe), has_freed_history)


def check(
    program: Program, compiler: Compiler, *, grow: bool = False, writes_are_told: bool = True
) -> Outcome:
    """Every difference over the first call, then with other values, after writes, with other sizes.

    No `writes_are_told` where the function itself looks at memory in a way by which autograd is not told.
    """
    return compared(EagerRun(program, grow=grow, writes_are_told=writes_are_told), compiler, grow=grow)


def compared(eager: EagerRun, compiler: Compiler, *, grow: bool = False) -> Outcome:
    """Every difference between what the compiled callable does and what eager did, call by call."""
    program = eager.program
    expected = eager.first
    with program.context():
        compiled = _made(program)
        try:
            call = quietly_compiled(compiler, compiled)
        except AotlensError as error:
            return Outcome((), error)
        except Exception as error:  # noqa: BLE001 - the user's own error, which eager must raise too
            raised = Observation(Failure(type(error), str(error)))
            return Outcome(compare(raised, expected).differences)
        seen = observe_alone(compiled, call=call)
        if seen.failure is not None and issubclass(seen.failure.kind, AotlensError):
            return Outcome((), seen.failure.kind(seen.failure.message))
        differences = list(compare(seen, expected).differences)
        for further in eager.calls:
            repeat = further.repeat
            if repeat.sizes is grown and not grow:
                continue
            seen = observe_alone(_again(program, compiled, repeat), repeat.probe, call)
            if repeat.probe.write_first is None or not overwrites_saved_values(further.seen):
                found = compare(seen, further.seen).differences
                differences += judged(found, repeat, further.has_freed_history)
    return Outcome(tuple(differences))


def judged(differences: Sequence[Difference], repeat: Repeat, has_freed_history: bool) -> list[Difference]:
    """Without what no backward of the whole call could do as eager does.

    After a write that autograd is not told of, eager's gradients are silently those of the values that it
    kept; the compiled call may keep others, and notice.  And where the module's own state has a history that
    autograd freed after an earlier call, eager leaves out what no gradient is asked of, and what was saved
    for it alone; one backward cannot.
    """
    kept = list(differences)
    if repeat.untold:
        kept = [one for one in kept if one.kind != "gradient" or one.max_abs is None]
        kept = [one for one in kept if not _only_raised(one, "modified by an inplace operation")]
    if has_freed_history:
        kept = [one for one in kept if not _only_raised(one, "backward through the graph a second time")]
        kept = [one for one in kept if not _only_raised(one, "modified by an inplace operation")]
    return kept


def _only_raised(one: Difference, phrase: str) -> bool:
    return one.kind == "backward error" and one.expected == "no error" and phrase in one.actual


def prepared(program: Program) -> tuple[PreparedCall, PreparedCall]:
    """Two worlds of the program's first call, for eager and for the compiled callable."""
    eager, compiled = (_made(program) for _ in range(2))
    return eager, compiled


def seed(number: int) -> None:
    """`torch.manual_seed`, which writes down the whole stack for each kind of device that has not started."""
    if torch.cuda.is_available():
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)


def _made(program: Program) -> PreparedCall:
    seed(0)
    with torch.enable_grad():
        first = prepare_call(program.make(), program.make_args())
    (copy,) = copies(first, 1)
    return copy


def quietly_compiled(compiler: Compiler, given: PreparedCall) -> Callable[..., Any]:
    """Compiles for the very tensors of the first call, so that a change made while tracing shows there."""
    state = torch.get_rng_state()
    call = compiler(given.fn, given.args)
    assert torch.equal(state, torch.get_rng_state()), "compiling moved the random state"
    return call


def repeats(seen: Observation, grow: bool, writes_are_told: bool = True) -> Iterator[Repeat]:
    """The calls that follow the first, as far as they can show something new."""
    yield Repeat(seed=1)
    for written in writes_worth_trying(seen):
        yield replace(written, untold=written.untold or not writes_are_told)
    for root in roots_worth_trying(seen):
        yield Repeat(4, Probe(writes=False, only_root=root))
    if grow:
        yield Repeat(seed=3, sizes=grown)


def _again(program: Program, before: PreparedCall, repeat: Repeat) -> PreparedCall:
    """The same callable, which keeps its state, with other arguments."""
    seed(repeat.seed)
    with torch.enable_grad(), repeat.sizes():
        args = program.make_args()
    (copy,) = copies(prepare_call(before.fn, args), 1, keep_fn=True)
    return copy


def roots_worth_trying(seen: Observation) -> Sequence[int]:
    """Results from which alone a backward may leave other leaves without a gradient.

    Not where wrappers stand beside plain tensors: which of them a gradient is then depends on what arrives.
    """
    tensors = [one for one in (*seen.outputs, *seen.inputs) if isinstance(one, TensorFacts)]
    if seen.backward_failure is not None:  # of one of them, maybe
        return range(sum(one.requires_grad for one in tensors))
    roots = () if seen.gradients is None else seen.gradients.roots
    kinds = {one.kind for one in tensors if one.name in roots}
    return (0, len(roots) - 1) if len(roots) > 1 and len(kinds) == 1 else ()


def writes_worth_trying(seen: Observation) -> Iterator[Repeat]:
    """One call for each output whose in-place change may show in another tensor that has a gradient."""
    tensors = [output for output in seen.outputs if isinstance(output, TensorFacts)]
    for index, output in enumerate(tensors):
        if output.value.is_floating_point() and output.aliases and seen.gradients:
            yield Repeat(2, Probe(writes=False, write_first=index), untold=output.owns_version_counter)


def overwrites_saved_values(eager: Observation) -> bool:
    """Whether the write hit a value that eager kept for the backward: which values are kept is our choice."""
    failure = eager.backward_failure
    return failure is not None and "modified by an inplace operation" in failure.message


def told(program: Program, differences: Sequence[Difference]) -> str:
    """A failure message: the program, then one difference a line."""
    return "\n".join([program.name, *(f"  {difference}" for difference in differences)])


def identity(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """The compiler that changes nothing."""
    return fn
