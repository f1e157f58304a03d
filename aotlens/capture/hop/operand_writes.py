"""Subgraphs of higher-order operators that write to their operands.

Invariant: such a function works on copies, which it returns after its results; their final values are written
to the operands once, after the operator.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import increment_version

from aotlens.capture.graph import Recording
from aotlens.capture.hop.loop_numbers import carries_scalars, record_scalar_loop
from aotlens.capture.hop.subgraphs import WritesToOperandError, record_higher_order, runner_of
from aotlens.capture.mutations.in_place import Write, record_mutation
from aotlens.capture.operators import aten, describe
from aotlens.torch_api.autograd import set_version
from aotlens.torch_api.modes import current_mode

COPY = aten.copy_.default


def record_functional_call(
    recording: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record one call of a higher-order operator and the writes of its functions; return its results.

    Raises:
        WritesToOperandError: a function writes to a carried operand, or to one that all steps share.
    """
    if carries_scalars(func, args):  # in inference mode no rule above autograd has handled it
        recording.leave_operator()
        with recording:  # type: ignore[attr-defined]  # a recorder
            return record_scalar_loop(func, args, kwargs)
    operands = [leaf for arg in args if isinstance(arg, (list, tuple)) for leaf in arg]
    tensors = [leaf for leaf in operands if isinstance(leaf, torch.Tensor) and not leaf.is_inference()]
    before = [tensor._version for tensor in tensors]
    written: tuple[int, ...] = ()
    while True:
        call = (
            FORMS[func.name()].call(args, written)
            if written
            else Call(args, kwargs, (), lambda result: result)
        )
        try:
            result, functional_args, keywords = record_higher_order(recording, func, call.args, call.kwargs)
            break
        except WritesToOperandError as error:
            further = tuple(sorted({*written, *error.operands}))
            form = FORMS.get(func.name())
            if form is None or further == written or not form.may_write(recording, args, further):
                raise
            written = further
        finally:  # the functions ran on aliases of the operands, which share their versions
            set_version(tensors, before)
    if not recording.in_backward:
        recording.add_call((func, functional_args, keywords, result, recording.origin))
    for target, value in zip(call.targets, call.values(result), strict=True):
        _write(recording, target, value)
    return call.results(result)


def _write(recording: Recording, target: Any, value: Any) -> None:
    record_mutation(recording, Write(COPY, describe(COPY), (target, value), {}))
    if not recording.in_backward:
        recording.add_call((COPY, (target, value), {}, target, recording.origin))
    if not target.is_inference():
        increment_version([target])


@dataclass(frozen=True, slots=True)
class Call:
    """The operator's call with functions that write to nothing."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    targets: tuple[Any, ...]
    """The operands that are written to."""
    results: Callable[[Any], Any]
    """Returns the user's results from the operator's."""
    values: Callable[[Any], Sequence[Any]] = lambda result: ()
    """Returns the operands' final values from the operator's results."""


class SubgraphOnCopies:
    """A function on copies of some operands, which follow its results."""

    def __init__(
        self, function: Callable[..., Any], operands: Callable[..., list[Any]], written: Sequence[int]
    ) -> None:
        self._function, self._operands, self._written = function, operands, written

    def __call__(self, *values: Any) -> Any:
        operands = self._operands(*values)
        for index in self._written:
            operands[index] = operands[index].clone()
        result = runner_of(current_mode(), self._function)(*operands)
        flat = tuple(result) if isinstance(result, (list, tuple)) else (result,)
        return self._ordered(flat, tuple(operands[index] for index in self._written))

    def _ordered(self, results: tuple[Any, ...], copies: tuple[Any, ...]) -> Any:
        return (*results, *copies)


class LoopCondition(SubgraphOnCopies):
    """The condition of a loop, which returns its one result."""

    def _ordered(self, results: tuple[Any, ...], copies: tuple[Any, ...]) -> Any:
        return results[0]


def _cond(args: tuple[Any, ...], written: tuple[int, ...]) -> Call:
    predicate, true, false, operands = args
    functions = [
        SubgraphOnCopies(function, lambda *values: list(values), written) for function in (true, false)
    ]
    count = len(written)
    return Call(
        (predicate, *functions, operands),
        {},
        tuple(operands[index] for index in written),
        lambda result: result[:-count],
        lambda result: result[-count:],
    )


def _carrying(first: int, written: tuple[int, ...]) -> Callable[..., list[Any]]:
    """Return a function that moves carried operands back to their original positions."""
    count = len(written)

    def operands(*values: Any) -> list[Any]:
        own = [*values[:first], *values[first + count :]]
        for index, value in zip(written, values[first : first + count], strict=True):
            own[index] = value
        return own

    return operands


def _while_loop(args: tuple[Any, ...], written: tuple[int, ...]) -> Call:
    """Carry the written operands from step to step."""
    condition, step, carried, more, *_ = args
    first, operands = len(carried), _carrying(len(carried), written)
    targets = tuple(more[index - first] for index in written)
    return Call(
        (
            LoopCondition(condition, operands, ()),
            SubgraphOnCopies(step, operands, written),
            (*carried, *targets),
            more,
        ),
        {},
        targets,
        lambda result: result[:first],
        lambda result: result[first:],
    )


@dataclass(frozen=True, slots=True)
class Form:
    """How the functions of one operator work without writing to operands."""

    call: Callable[[tuple[Any, ...], tuple[int, ...]], Call]
    """Returns the call without writes, from the indices of the written operands."""
    operands: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    """Returns the operands among the operator's arguments."""
    first: Callable[[tuple[Any, ...]], int] = lambda args: 0
    """Returns the index of the first operand that torch lets a function write to."""

    def may_write(self, recording: Recording, args: tuple[Any, ...], written: tuple[int, ...]) -> bool:
        """Return True if torch permits the writes and no other operand shares the memory."""
        operands, first = self.operands(args), self.first(args)
        storages = [
            id(recording.tracked(operand).storage)
            for operand in operands
            if isinstance(operand, torch.Tensor)
        ]
        return all(
            index >= first and storages.count(id(recording.tracked(operands[index]).storage)) == 1
            for index in written
        )


FORMS = {
    "cond": Form(_cond, lambda args: tuple(args[3])),
    "while_loop": Form(_while_loop, lambda args: (*args[2], *args[3]), lambda args: len(args[2])),
}
"""By operator."""
