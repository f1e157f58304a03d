"""Compare a compiled target with eager; `aotlens.verify` and the sessions use these functions.

Works on copies: arguments, module state, gradients and the random state stay unchanged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from aotlens.capture.inputs.module_tensors import module_tensors
from aotlens.compiled import Compiled
from aotlens.ir.slots import UserInput
from aotlens.observe import unobserved
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct, compile_graph_module
from aotlens.rng_state import same_random_state
from aotlens.torch_api.operators import pytree
from aotlens.verify.compare import Verification
from aotlens.verify.first_call import as_tuple
from aotlens.verify.locate.origin import locate
from aotlens.verify.random_numbers import NOT_COMPARED, depends_on_own_numbers, with_eager_numbers
from aotlens.verify.rounds import RANDOM_ROUNDS, RoundsVerdict, Side, Sides, judge
from aotlens.verify.tensors.free_variables import restoring_tensors
from aotlens.verify.tensors.prepared_call import PreparedCall, copies, prepare_call, state_of


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdict on a target, with the compiled target and the arguments."""

    verification: Verification
    compiled: Compiled
    judged: RoundsVerdict
    values: list[Any] | None
    """The flat inputs of the round that the verdict describes; None if they are not the captured ones."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """A compiled target and its comparison."""

    compiled: Compiled
    judged: RoundsVerdict
    state: list[Tensor]
    """The tensors that both callables hold."""


def verify(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Verification:
    """Compiles `fn` for these arguments and compares calls, forward and backward, with eager.

    A second round takes random arguments of the same sizes, strides, types and aliasing.  Where something
    differs, `where` names the first stage and the first node.
    """
    return verify_with(CompileOptions(), fn, args, kwargs)


def verify_with(
    options: CompileOptions, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Verification:
    """Like `verify`, with compile options."""
    return check_function(options, fn, args, kwargs).verification


def compare_function(options: CompileOptions, fn: Callable[..., Any], args: Sequence[Any]) -> Verification:
    """Compare one round on the arguments alone, without locating a difference."""
    return _compared(options, fn, (args, {}), 0).judged.verification


def check_function(
    options: CompileOptions,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    fresh: int = RANDOM_ROUNDS,
) -> Checked:
    """Compile a function or module and compare it in as many rounds of random arguments as requested."""

    def compare(options: CompileOptions) -> _Compared:
        return _compared(options, fn, (args, kwargs), fresh)

    return _checked(compare(options), options, fn, compare)


def _compared(
    options: CompileOptions,
    fn: Callable[..., Any],
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    fresh: int,
) -> _Compared:
    """Compile a function and compare it."""
    original = prepare_call(fn, *arguments)
    eager, compiled_call = copies(original)
    state = state_of(eager.fn, compiled_call.fn)
    with same_random_state(), restoring_tensors(state):
        compiled = compile_direct(compiled_call.fn, compiled_call.args, dict(compiled_call.kwargs), options)
    sides = Sides(original, Side(eager.fn, eager.fn), Side(compiled_call.fn, compiled.call), state)
    return _Compared(compiled, judge(sides, fresh), state)


def _checked(
    compared: _Compared,
    options: CompileOptions,
    fn: Callable[..., Any],
    compare: Callable[[CompileOptions], _Compared],
) -> Checked:
    """Return the verdict; of code with random numbers of its own, that of the same code with eager's.

    `compare` compiles and compares again.
    """
    if depends_on_own_numbers(compared.judged.verification, options):
        options = with_eager_numbers(options)
        with unobserved():
            compared = compare(options)
        verification = compared.judged.verification
        verification = replace(verification, notes=(*verification.notes, NOT_COMPARED))
        compared = replace(compared, judged=replace(compared.judged, verification=verification))
    return _located(compared, options, fn)


def check_graph(
    compiled: Compiled,
    options: CompileOptions,
    calls: tuple[Callable[..., Any], Callable[..., Any]],
    inputs: Sequence[object],
) -> Checked:
    """Compare a graph that Dynamo captured; `calls` are the compiled graph and eager's, with flat inputs."""
    function, graph = calls
    own = len(compiled.captured.flat_inputs) - len(inputs)  # the graph's own tensors come first
    names = [row.name for row in compiled.target().inputs][own:]
    inputs_of_graph = compiled.captured.flat_inputs[own:]
    free = frozenset(index for index, item in enumerate(inputs_of_graph) if isinstance(item.slot, UserInput))
    state = state_of(graph, function)
    sides = Sides(
        prepare_call(graph, inputs, names=names),
        Side(graph, as_tuple(graph)),
        Side(graph, as_tuple(function)),
        state,
        free,
    )

    def compare(options: CompileOptions) -> _Compared:
        with same_random_state():
            again = compile_graph_module(compiled.captured.subject.function, inputs, options)
        return _Compared(again, judge(replace(sides, compiled=Side(graph, as_tuple(again.call)))), state)

    return _checked(_Compared(compiled, judge(sides), state), options, graph, compare)


def _located(compared: _Compared, options: CompileOptions, fn: Callable[..., Any]) -> Checked:
    """Return the verdict with the location where the first difference begins."""
    compiled, judged, state = compared.compiled, compared.judged, compared.state
    verification, arguments = judged.verification, judged.arguments
    if verification.outcome != "differs":
        return Checked(verification, compiled, judged, None)

    def eager() -> object:
        (own,) = copies(prepare_call(fn, arguments.args, arguments.kwargs, arguments.labels), 1)
        return own.fn(*own.args, **own.kwargs)

    values = flat_inputs(compiled, fn, arguments)
    with restoring_tensors(state), same_random_state():
        located = locate(compiled, options, values, (verification.differences[0], judged.eager, eager))
    verification = replace(verification, where=located.lines() if located is not None else "")
    return Checked(verification, compiled, judged, values)


def flat_inputs(compiled: Compiled, fn: Callable[..., Any], prepared: PreparedCall) -> list[Any] | None:
    """Return parameters and buffers, then the arguments; None if these are not the captured inputs."""
    if compiled.frontend == "dynamo":
        values = list(prepared.args)
    else:
        leaves = pytree.tree_leaves((prepared.args, dict(prepared.kwargs)))
        values = [*module_tensors(fn).values(), *leaves]
    return values if len(values) == len(compiled.captured.flat_inputs) else None
