"""Record a higher-order operator: each function among its arguments becomes a subgraph, a program of its own.

Invariant: no subgraph writes to its operands; functions that do so return the final values after their
results, and these are written to the operands once, after the operator.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.graph import increment_version

from aotlens.capture.graph import Recording
from aotlens.capture.hop.bodies import Body, OuterSymbols
from aotlens.capture.hop.loop_numbers import carries_scalars, record_scalar_loop
from aotlens.capture.hop.nested_regions import RegionPart, module_of, record_region_part
from aotlens.capture.hop.operands import OPERANDS_BY_OPERATOR, SHARED_OPERANDS, with_extra_operands
from aotlens.capture.hop.triton_kernels import LAUNCH, record_triton_kernel
from aotlens.capture.mutations.in_place import WritingCall, record_mutation
from aotlens.capture.operators import aten, describe
from aotlens.capture.recording_mode import RecordingMode
from aotlens.capture.symbols.symint_calls import SymbolicCalls
from aotlens.ir.program import Program, is_random_node, map_leaves, must_run
from aotlens.torch_api.autograd import current_autograd_node
from aotlens.torch_api.hop import has_ordered_effect, indices_from_tensors, without_empty_mutation_info
from aotlens.torch_api.symbolic import make_shape_env
from aotlens.unsupported import unsupported


def _with_effects(token: Any, op: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Run the operator; the recording keeps the order that the token expresses."""
    result = op(*args, **kwargs)
    return (aten.clone.default(token), *(result if isinstance(result, tuple) else (result,)))


INLINE: dict[str, Callable[..., Any]] = {
    "strict_mode": lambda function, operands: function(*operands),
    "with_effects": _with_effects,
}
"""Operators that only affect tracing and compute nothing themselves."""

WITHOUT_SUBGRAPHS = frozenset(
    {
        "auto_functionalized",
        "auto_functionalized_v2",
        "call_torchbind",
        "graphsafe_run_with_rng_state",
        "inline_asm_elementwise",
        "out_dtype",
        "print",
        "run_and_save_rng_state",
        "run_dtensor_rng_op",
        "run_with_rng_state",
        "triton_kernel_wrapper_functional",
    }
)
"""Operators with new results whose arguments are tensors and plain values."""

REPLAYED = frozenset({"cond", "map_impl", "while_loop"})
"""Operators whose backward calls their functions a second time."""

LOOPS = frozenset({"map_impl", "scan", "while_loop", "while_loop_stack_output"})
"""Operators whose fake kernels and lowerings count steps with a symbol."""


@dataclass(frozen=True, slots=True)
class _HigherOrderCall:
    """One recorded call of a higher-order operator."""

    result: Any
    args: tuple[Any, ...]
    """The arguments with functional subgraphs."""
    kwargs: dict[str, Any]
    targets: tuple[Any, ...] = ()
    """The operands that the functions write to; their final values end the result."""


def record_higher_order(
    recording: RecordingMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record one call of a higher-order operator and the writes of its functions; return its results."""
    if carries_scalars(func, args):  # in inference mode no rule above autograd has handled it
        recording.is_inside_operator = False
        with recording:
            return record_scalar_loop(func, args, kwargs)
    call = _record_call(recording, func, *without_empty_mutation_info(func.name(), args, kwargs))
    if not recording.in_backward:
        recording.add_call((func, call.args, call.kwargs, call.result, recording.origin))
    if not call.targets:
        return call.result
    count = len(call.result) - len(call.targets)
    for target, value in zip(call.targets, call.result[count:], strict=True):
        _write(recording, target, value)
    return call.result[:count]


def _write(recording: RecordingMode, target: Any, value: Any) -> None:
    """Record the write of an operand's final value, which autograd sees by its version."""
    copy = aten.copy_.default
    record_mutation(recording, WritingCall(copy, describe(copy), (target, value), {}))
    if not recording.in_backward:
        recording.add_call((copy, (target, value), {}, target, recording.origin))
    if not target.is_inference():
        increment_version([target])


def _record_call(
    recording: RecordingMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _HigherOrderCall:
    """Record the operator on programs of its functions, without their writes.

    It runs on graph modules of the programs, which is how later stages replay the call.
    """
    name = func.name()
    if name == LAUNCH:
        return _HigherOrderCall(record_triton_kernel(recording, kwargs), args, kwargs)
    if args and isinstance(args[0], RegionPart):
        return _HigherOrderCall(*record_region_part(recording, args[0], args), kwargs)
    if name not in OPERANDS_BY_OPERATOR and name not in WITHOUT_SUBGRAPHS:
        raise unsupported("higher-order-operator", recording.span, operator=name)
    if name in LOOPS and recording.fake_mode.shape_env is None:
        recording.fake_mode.shape_env = make_shape_env()
    if name == "invoke_subgraph":
        targets, programs = (), {id(args[0]): region_program(recording, *args)}
    else:
        args, targets, programs = _programs(recording, name, args)
    if name in REPLAYED and current_autograd_node() is not None:
        _check_no_random_op(name, programs.values())
    to_node = lambda value: _argument(recording, name, value, programs)
    node_args, node_kwargs = map_leaves(args, to_node), map_leaves(kwargs, to_node)
    modules = {key: module_of(recording, program) for key, program in programs.items()}
    swap = lambda value: modules.get(id(value), value)
    args, kwargs = map_leaves(args, swap), map_leaves(kwargs, swap)
    result = func(*args, **kwargs)
    if has_ordered_effect(func) or any(must_run(node) for body in programs.values() for node in body.nodes):
        recording.origin = replace(recording.origin, effect=True)
    node = recording.add_node(func, node_args, node_kwargs, result)
    recording.track_results(node, result)
    return _HigherOrderCall(result, args, kwargs, targets)


def region_program(recording: RecordingMode, subgraph: Any, identifier: Any, *operands: Any) -> Program:
    """Return the program of a marked region, which calls on like operands share.

    Raises:
        UnsupportedError: the region writes to an operand, so it has no such program.
    """
    key = (identifier, id(subgraph), region_kind(operands))
    if key not in recording.regions:
        body = _record_body(recording, "invoke_subgraph", ("subgraph", subgraph, operands))
        body.check_no_writes()
        recording.regions[key] = (body.program(), subgraph)
    program: Program = recording.regions[key][0]
    return program


def region_kind(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the properties of a marked region's operands that distinguish its programs."""
    return tuple(
        (tuple(map(str, arg.shape)), tuple(map(str, arg.stride())), arg.dtype, arg.device)
        if isinstance(arg, torch.Tensor)
        else str(arg)
        for arg in operands
    )


def _programs(
    recording: RecordingMode, operator: str, args: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[int, Program]]:
    """Run the functions of a call.

    Returns the arguments of a call without writes, the operands to write to, and the programs by function.
    """
    symbols = OuterSymbols(recording) if operator in SHARED_OPERANDS else None
    bodies: dict[int, Body] = {}
    for subgraph in OPERANDS_BY_OPERATOR[operator](*args) if operator in OPERANDS_BY_OPERATOR else ():
        if id(subgraph[1]) not in bodies:
            body = bodies[id(subgraph[1])] = _record_body(recording, operator, subgraph, symbols)
            if not _may_write(recording, body, args):
                body.check_no_writes()
    written = sorted({index for body in bodies.values() for index in body.writes()})
    targets: tuple[Any, ...] = ()
    if written:
        args, targets = _with_final_values(bodies.values(), args, written)
    if symbols is not None and symbols.operands:
        args = with_extra_operands(operator, args, symbols.operands)
        for body in bodies.values():
            symbols.add_inputs_to(body)
    return args, targets, {key: body.program() for key, body in bodies.items()}


WRITING = frozenset({("cond", "if_true"), ("cond", "if_false"), ("while_loop", "loop_body")})
"""Functions that may write to operands: a branch to each, a loop's body to those that all steps share."""


def _may_write(recording: RecordingMode, body: Body, args: tuple[Any, ...]) -> bool:
    """Return True if torch permits the writes of a function and no other operand shares the memory."""
    if (body.operator, body.label) not in WRITING:
        return False
    first = len(args[2]) if body.operator == "while_loop" else 0
    operands = OPERANDS_BY_OPERATOR[body.operator](*args)[0][2]
    storages = [recording.tracked(value).storage for value in operands if isinstance(value, torch.Tensor)]
    return all(
        index >= first
        and not storage.metadata_mutations
        and storages.count(recording.tracked(operands[index]).storage) == 1
        for index, storage in body.writes().items()
    )


def _with_final_values(
    bodies: Iterable[Body], args: tuple[Any, ...], written: list[int]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Let each function return the final values; return the call's arguments, and the written operands.

    A loop carries the written operands from step to step.
    """
    for body in bodies:
        if (body.operator, body.label) in WRITING:
            body.add_final_values(written)
        if body.operator == "while_loop":
            body.move_inputs(written, len(args[2]))
    *functions, carried, shared = args
    if callable(carried):  # a predicate, two branches and their operands
        return args, tuple(shared[index] for index in written)
    indices = [index - len(carried) for index in written]
    targets = tuple(shared[index] for index in indices)
    rest = tuple(value for index, value in enumerate(shared) if index not in indices)
    return (*functions, (*carried, *targets), rest), targets


def _argument(recording: RecordingMode, operator: str, value: Any, programs: dict[int, Program]) -> Any:
    if id(value) in programs:
        return programs[id(value)]
    if callable(value) and not hasattr(value, "namespace") and not isinstance(value, torch.Tensor):
        raise unsupported("function-operand", recording.span, operator=operator)
    return recording.argument(value)


Subgraph = tuple[str, Any, tuple[Any, ...]]
"""A name for the module text, the function, and example inputs."""


def _record_body(
    recording: RecordingMode, operator: str, subgraph: Subgraph, symbols: OuterSymbols | None = None
) -> Body:
    """Run one function on fake tensors and on a recorder of its own."""
    label, function, inputs = subgraph
    inner = recording.subgraph_recorder()
    body = Body(inner, operator, label, inputs)
    if symbols is not None:
        symbols.lift_into(body)
    with inner, _indexing(inner, operator):
        result = body.run(function)
    body.add_results(result)
    body.name = recording.name(f"{label}_body")
    return body


def _indexing(inner: Recording, operator: str) -> AbstractContextManager[Any]:
    """Return the mode for the function's indexing: torch disables the outer one while the operator runs."""
    if operator.startswith("flex"):
        return indices_from_tensors()
    return SymbolicCalls() if inner.fake_mode.shape_env is not None else nullcontext()


def _check_no_random_op(operator: str, programs: Iterable[Program]) -> None:
    """Reject a random op in a function that a backward calls again: its numbers would be other ones."""
    for node in (node for program in programs for node in program.nodes):
        if is_random_node(node):
            raise unsupported("random-op-in-backward", node.origin.location.innermost, operator=operator)
