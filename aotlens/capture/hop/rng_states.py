"""Random operators in subgraphs, where random values are functions of a seed and an offset.

Invariant: such a function receives the seed and the offset as operands and returns the next offset, also if
it runs no random operator; the next random operator starts at the offset that the call returns.
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
"""The key in a graph's `meta` for the program that it was made from."""

RecordCall = Callable[[Recording, Any, tuple[Any, ...], dict[str, Any]], Any]


class SubgraphWithState:
    """A function with the seed as its last operand and the offset among the others."""

    def __init__(
        self, error: RandomOpInSubgraphError, function: Any, offset_at: int, result_at: int | None
    ) -> None:
        self._error, self._function = error, function
        self._offset_at = offset_at
        self._result_at = result_at
        """The offset's position in the results; None for a loop condition, which returns none."""

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
    """The call whose functions receive the RNG state."""

    func: Any
    args: tuple[Any, ...]
    offset_at: int
    """The offset's position in the results."""


WrapFunction = Callable[[Any, int, int | None], SubgraphWithState]
State = tuple[Any, Any]


def _cond(args: tuple[Any, ...], make: WrapFunction, state: State) -> CallWithState:
    predicate, true, false, operands = args
    functions = [make(function, len(operands), -1) for function in (true, false)]
    return CallWithState(torch.ops.higher_order.cond, (predicate, *functions, (*operands, *state[::-1])), -1)


def _while_loop(args: tuple[Any, ...], make: WrapFunction, state: State) -> CallWithState:
    condition, step, carried, more = args
    count, (seed, offset) = len(carried), state
    functions = (make(condition, count, None), make(step, count, -1))
    return CallWithState(
        torch.ops.higher_order.while_loop, (*functions, (*carried, offset), (*more, seed)), count
    )


def _stacking_loop(args: tuple[Any, ...], make: WrapFunction, state: State) -> CallWithState:
    """Return the loop that stacks its results; the last offset is the next one."""
    with_state = _while_loop(args, make, state)
    return CallWithState(
        torch.ops.higher_order.while_loop_stack_output, with_state.args, with_state.offset_at
    )


def _map(args: tuple[Any, ...], make: WrapFunction, state: State) -> CallWithState:
    """Return a scan, whose steps have an order."""
    step, mapped, more = args
    seed, offset = state
    return CallWithState(SCAN, (make(step, 0, 0), (offset,), mapped, (*more, seed)), 0)


def _scan(args: tuple[Any, ...], make: WrapFunction, state: State) -> CallWithState:
    step, init, mapped, more = (*args, ())[:4]
    count, (seed, offset) = len(init), state
    return CallWithState(SCAN, (make(step, count, count), (*init, offset), mapped, (*more, seed)), count)


FORMS: dict[str, Callable[[tuple[Any, ...], WrapFunction, State], CallWithState]] = {
    "cond": _cond,
    "map_impl": _map,
    "scan": _scan,
    "while_loop": _while_loop,
    "while_loop_stack_output": _stacking_loop,
}
"""By operator; the steps of others have no order, or their number of operands is fixed."""


def record_random_call(
    recording: Recording, call: tuple[Any, ...], record: RecordCall, error: RandomOpInSubgraphError
) -> Any:
    """Record a call, as operator and arguments, whose functions are random; return its results.

    Raises:
        RandomOpInSubgraphError: the steps have no order, a condition is random, or the call is inside a
            function that has not received the state.
    """
    func, args, kwargs = call
    form = FORMS.get(func.name())
    if form is None or kwargs or any(isinstance(arg, SubgraphWithState) for arg in args):
        raise error
    random = recording.random.functional  # type: ignore[attr-defined]  # a recorder
    make = lambda function, offset_at, result_at: SubgraphWithState(error, function, offset_at, result_at)
    with_state = form(args, make, random.state(error.device))
    calls_before = recording.call_count
    results = record(recording, with_state.func, with_state.args, {})
    position = with_state.offset_at % len(results)
    random.set_offset(
        error.device,
        _last_offset(recording, results[position]) if form is _stacking_loop else results[position],
    )
    own = type(results)((*results[:position], *results[position + 1 :]))
    if not recording.in_backward:
        recording.replace_calls(
            calls_before,
            with_state.func,
            lambda: (func, _original_args(recording, func, args), {}, own, recording.origin),
        )
    return own


def _original_args(recording: Any, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with the functions as graphs that call random operators directly."""
    own, recording.decompositions = recording.decompositions, without_random_rules(recording.decompositions)
    try:
        with without_modes(), recording.fake_mode:
            bodies = OPERANDS_BY_OPERATOR[func.name()](*args)
            programs = [(body[1], record_subgraph(recording, func.name(), body)) for body in bodies]
    finally:
        recording.decompositions = own
    modules = {id(function): to_graph_module(program, training=False) for function, program in programs}
    for function, program in programs:
        modules[id(function)].meta[PROGRAM_KEY] = program
    return tuple(modules.get(id(arg), arg) for arg in args)


def _last_offset(recording: Recording, offsets: Any) -> Any:
    with recording:  # type: ignore[attr-defined]  # a recorder
        return offsets[-1].clone()
