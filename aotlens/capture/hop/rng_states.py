"""Functions of higher-order operators that draw, where draws are functions of a seed and an offset.

Invariant: such a function gets the seed and the offset beside its operands and gives the offset after its
draws, also where it draws nothing; what the operator gives is where the next draw starts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.hop.operands import OPERANDS_BY_OPERATOR
from aotlens.capture.hop.subgraphs import record_subgraph, runner_of
from aotlens.capture.rng.philox import RandomOpInSubgraphError
from aotlens.capture.rng.random_op_rules import without_random_rules
from aotlens.ir.graph_module import to_graph_module
from aotlens.torch_api.modes import current_mode, without_modes

SCAN = torch.ops.higher_order.scan
PROGRAM_KEY = "aotlens_program"
"""Under this name a graph's `meta` has the program that it was made of."""

Record = Callable[[Recording, Any, tuple[Any, ...], dict[str, Any]], Any]


class SubgraphWithState:
    """A function with the seed as its last operand and the offset at a place among them."""

    def __init__(
        self, error: RandomOpInSubgraphError, function: Any, offset_at: int, result_at: int | None
    ) -> None:
        self._error, self._function = error, function
        self._offset_at = offset_at
        self._result_at = result_at
        """Where the offset stands among the results; None for the condition of a loop, which gives none."""

    def __call__(self, *values: Any) -> Any:
        operands, seed = [*values[:-1]], values[-1]
        offset, recorder = operands.pop(self._offset_at), current_mode()
        random = recorder.random.functional
        if self._result_at is not None:
            random.use_operands(self._error.device, seed, offset)
        result = runner_of(recorder, self._function)(*operands)
        if self._result_at is None:
            return result
        flat = [*result] if isinstance(result, (list, tuple)) else [result]
        position = len(flat) if self._result_at < 0 else self._result_at
        return (*flat[:position], random.state(self._error.device)[1], *flat[position:])


@dataclass(frozen=True, slots=True)
class CallWithState:
    """The call whose functions draw from what they are given."""

    func: Any
    args: tuple[Any, ...]
    offset_at: int
    """Among the results."""


Make = Callable[[Any, int, int | None], SubgraphWithState]
State = tuple[Any, Any]


def _cond(args: tuple[Any, ...], make: Make, state: State) -> CallWithState:
    predicate, true, false, operands = args
    functions = [make(function, len(operands), -1) for function in (true, false)]
    return CallWithState(torch.ops.higher_order.cond, (predicate, *functions, (*operands, *state[::-1])), -1)


def _while_loop(args: tuple[Any, ...], make: Make, state: State) -> CallWithState:
    condition, step, carried, more = args
    count, (seed, offset) = len(carried), state
    functions = (make(condition, count, None), make(step, count, -1))
    return CallWithState(
        torch.ops.higher_order.while_loop, (*functions, (*carried, offset), (*more, seed)), count
    )


def _stacking_loop(args: tuple[Any, ...], make: Make, state: State) -> CallWithState:
    """What a loop gives of each step: the last offset is the one after it."""
    with_state = _while_loop(args, make, state)
    return CallWithState(
        torch.ops.higher_order.while_loop_stack_output, with_state.args, with_state.offset_at
    )


def _map(args: tuple[Any, ...], make: Make, state: State) -> CallWithState:
    """A scan, whose steps come one after the other."""
    step, mapped, more = args
    seed, offset = state
    return CallWithState(SCAN, (make(step, 0, 0), (offset,), mapped, (*more, seed)), 0)


def _scan(args: tuple[Any, ...], make: Make, state: State) -> CallWithState:
    step, init, mapped, more = (*args, ())[:4]
    count, (seed, offset) = len(init), state
    return CallWithState(SCAN, (make(step, count, count), (*init, offset), mapped, (*more, seed)), count)


FORMS: dict[str, Callable[[tuple[Any, ...], Make, State], CallWithState]] = {
    "cond": _cond,
    "map_impl": _map,
    "scan": _scan,
    "while_loop": _while_loop,
    "while_loop_stack_output": _stacking_loop,
}
"""By operator; the steps of others have no order, or their number of operands is the operator's own."""


def record_random_call(
    tape: Recording, call: tuple[Any, ...], record: Record, error: RandomOpInSubgraphError
) -> Any:
    """Record a call of an operator (the operator, its arguments) whose functions draw; its results.

    Raises:
        RandomOpInSubgraphError: no order of steps, a random op in a condition, or the call is within
            a function that has not been given the state.
    """
    func, args, kwargs = call
    form = FORMS.get(func.name())
    if form is None or kwargs or any(isinstance(arg, SubgraphWithState) for arg in args):
        raise error
    random = tape.random.functional  # type: ignore[attr-defined]  # a recorder
    make = lambda function, offset_at, result_at: SubgraphWithState(error, function, offset_at, result_at)
    with_state = form(args, make, random.state(error.device))
    calls_before = tape.call_count
    results = record(tape, with_state.func, with_state.args, {})
    position = with_state.offset_at % len(results)
    random.set_offset(
        error.device, _last(tape, results[position]) if form is _stacking_loop else results[position]
    )
    own = type(results)((*results[:position], *results[position + 1 :]))
    if not tape.in_backward:
        tape.replace_calls(
            calls_before, with_state.func, lambda: (func, _as_called(tape, func, args), {}, own, tape.origin)
        )
    return own


def _as_called(tape: Any, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with the functions as graphs that draw by themselves."""
    own, tape.decompositions = tape.decompositions, without_random_rules(tape.decompositions)
    try:
        with without_modes(), tape.fake_mode:
            bodies = OPERANDS_BY_OPERATOR[func.name()](*args)
            programs = [(body[1], record_subgraph(tape, func.name(), body)) for body in bodies]
    finally:
        tape.decompositions = own
    modules = {id(function): to_graph_module(program, training=False) for function, program in programs}
    for function, program in programs:
        modules[id(function)].meta[PROGRAM_KEY] = program
    return tuple(modules.get(id(arg), arg) for arg in args)


def _last(tape: Recording, offsets: Any) -> Any:
    with tape:  # type: ignore[attr-defined]  # a recorder
        return offsets[-1].clone()
