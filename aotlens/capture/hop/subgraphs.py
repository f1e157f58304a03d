"""Record a higher-order operator: each function among its arguments becomes a subgraph, a program of its own.

Invariant: a subgraph reads only its operands, also for symbolic sizes of the outer graph.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from aotlens.capture.graph import Recording
from aotlens.capture.hop.nested_regions import RegionPart, record_region_part
from aotlens.capture.hop.operands import OPERANDS_BY_OPERATOR, SHARED_OPERANDS, with_extra_operands
from aotlens.capture.hop.triton_kernels import LAUNCH, record_triton_kernel
from aotlens.capture.operators import aten
from aotlens.capture.storage import Storage
from aotlens.capture.symbols.float_inputs import FloatRunner
from aotlens.capture.symbols.symint_calls import SymbolicCalls
from aotlens.errors import UnsupportedError
from aotlens.ir.graph_module import to_graph_module
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import (
    Node,
    Program,
    ProgramInput,
    ProgramOutput,
    is_random_node,
    map_leaves,
    must_run,
    nodes_in,
    reachable,
)
from aotlens.ir.slots import UserInput, UserOutput
from aotlens.torch_api.autograd import current_autograd_node
from aotlens.torch_api.hop import has_ordered_effect, indices_from_tensors, without_empty_mutation_info
from aotlens.torch_api.operators import pytree
from aotlens.torch_api.symbolic import make_shape_env
from aotlens.unsupported import unsupported, unsupported_as


class OuterSymbols:
    """The outer symbols that the functions of one call read, in the order of their first use."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._operands: dict[Any, Any] = {}
        """The operand for each symbol."""
        self._own: dict[int, dict[Any, ProgramInput]] = {}
        """The inputs by symbol, of each function's recording and later of its program."""

    @property
    def operands(self) -> tuple[Any, ...]:
        return tuple(self._operands.values())

    def add_inputs_to(self, inner: Recording, label: str) -> None:
        """Turn the symbols that a function's recording lacks into its inputs."""
        own: dict[Any, ProgramInput] = {}
        self._own[id(inner)] = own

        def lift_symbol(symbol: Any) -> Node:
            number = self._recording.symbols.of_symbol(symbol).val
            if symbol not in self._operands:
                self._operands[symbol] = self._operand(number)
            own[symbol] = _input(inner, label, self._operands[symbol])
            if isinstance(number, torch.SymInt):
                return own[symbol].node
            return inner.add_node(aten._local_scalar_dense.default, (own[symbol].node,), {}, number)

        inner.symbols.lift_symbol = lift_symbol

    def inputs_of(self, inner: Recording) -> tuple[ProgramInput, ...]:
        return tuple(self._own[id(inner)].values())

    def set_program(self, inner: Recording, program: Program) -> None:
        """Note the program that a recording has become."""
        self._own[id(program)] = self._own.pop(id(inner))

    def with_all_symbols(self, program: Program) -> Program:
        """Return the program with inputs for the symbols that other functions read."""
        own = self._own[id(program)]
        first = program.inputs[: len(program.inputs) - len(own)]
        more = (
            own.get(symbol) or _input(self._recording, program.name, operand)
            for symbol, operand in self._operands.items()
        )
        return replace(program, inputs=(*first, *more))

    def _operand(self, number: Any) -> Any:
        """Return the operand for an outer symbol: a size itself; for a float, a tensor of the outer graph."""
        if isinstance(number, torch.SymInt):
            return number
        recording, func, kwargs = self._recording, aten.scalar_tensor.default, {"dtype": torch.float64}
        node = recording.emit(func, recording.symbols.value(number), **kwargs)
        operand = node.val.detach()
        recording.track(operand, Storage(node, operand))
        if not recording.in_backward:
            recording.add_call((func, (number,), kwargs, operand, recording.origin))
        return operand


def _input(recording: Recording, label: str, operand: Any) -> ProgramInput:
    name = recording.name(f"{label}_number")
    value = operand.detach() if isinstance(operand, torch.Tensor) else operand
    return ProgramInput(Node(name, None, (), {}, value, Origin(NO_ORIGIN, "")), UserInput(name, 0))


def _with_effects(token: Any, op: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Run the operator; the recording keeps the order that the token expresses."""
    result = op(*args, **kwargs)
    return (aten.clone.default(token), *(result if isinstance(result, tuple) else (result,)))


INLINE: dict[str, Callable[..., Any]] = {
    "strict_mode": lambda function, operands: function(*operands),
    "with_effects": _with_effects,
}
"""Operators that only affect tracing and compute nothing themselves."""

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""The results of a call, its arguments and its keyword arguments."""

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

FLEX_BACKWARD = "flex_attention_backward"
"""The operator that requires a list as the result of one of its functions."""

REPLAYED = frozenset({"cond", "map_impl", "while_loop"})
"""Operators whose backward calls their functions a second time."""

LOOPS = frozenset({"map_impl", "scan", "while_loop", "while_loop_stack_output"})
"""Operators whose fake kernels and lowerings count steps with a symbol."""


def record_higher_order(
    recording: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Call:
    """Record a higher-order operator; return its results, and its arguments with functional subgraphs."""
    name = func.name()
    args, kwargs = without_empty_mutation_info(name, args, kwargs)
    if name == LAUNCH:
        return record_triton_kernel(recording, kwargs), args, kwargs
    if args and isinstance(args[0], RegionPart):
        return (*record_region_part(recording, args[0], args), kwargs)
    if name not in OPERANDS_BY_OPERATOR and name not in WITHOUT_SUBGRAPHS:
        raise unsupported("higher-order-operator", recording.span, operator=name)
    if name in LOOPS and recording.fake_mode.shape_env is None:
        recording.fake_mode.shape_env = make_shape_env()
    programs: dict[int, Program] = {}
    modules: dict[int, Any] = {}
    symbols = OuterSymbols(recording) if name in SHARED_OPERANDS else None
    for body in OPERANDS_BY_OPERATOR[name](*args, **kwargs) if name in OPERANDS_BY_OPERATOR else ():
        function = body[1]
        if id(function) not in programs:
            key = same_region(*args) if name == "invoke_subgraph" else object()
            programs[id(function)], modules[id(function)], _ = region_subgraph(
                recording, key, name, body, symbols
            )
    if name in REPLAYED and current_autograd_node() is not None:
        check_no_random_op(name, programs.values())
    if symbols is not None and symbols.operands:
        args = with_extra_operands(name, args, symbols.operands)
        programs = {key: symbols.with_all_symbols(program) for key, program in programs.items()}
        modules = {key: to_graph_module(program, training=False) for key, program in programs.items()}
    to_node = lambda value: _argument(recording, name, value, programs)
    node_args, node_kwargs = map_leaves(args, to_node), map_leaves(kwargs, to_node)
    swap = lambda value: modules.get(id(value), value)
    args, kwargs = map_leaves(args, swap), map_leaves(kwargs, swap)
    result = func(*args, **kwargs)
    if has_ordered_effect(func) or any(must_run(node) for body in programs.values() for node in body.nodes):
        recording.origin = replace(recording.origin, effect=True)
    node = recording.add_node(func, node_args, node_kwargs, result)
    _track_results(recording, node, result)
    return result, args, kwargs


def region_subgraph(
    recording: Recording, key: Any, operator: str, body: "Subgraph", symbols: OuterSymbols | None = None
) -> tuple[Program, Any, Any]:
    """Return the program and the graph module of a subgraph; calls with the same key share them."""
    if key not in recording.regions:
        program = record_subgraph(recording, operator, body, symbols)
        recording.regions[key] = (program, to_graph_module(program, training=False), body[1])
    shared: tuple[Program, Any, Any] = recording.regions[key]
    return shared


def same_region(subgraph: Any, identifier: Any, *operands: Any) -> Any:
    """Return a key that calls of one marked region on like operands share."""
    return (identifier, id(subgraph), region_kind(operands))


def region_kind(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the properties of a marked region's operands that distinguish its programs."""
    return tuple(
        (tuple(map(str, arg.shape)), tuple(map(str, arg.stride())), arg.dtype, arg.device)
        if isinstance(arg, torch.Tensor)
        else str(arg)
        for arg in operands
    )


def _argument(recording: Recording, operator: str, value: Any, programs: dict[int, Program]) -> Any:
    if id(value) in programs:
        return programs[id(value)]
    if callable(value) and not hasattr(value, "namespace") and not isinstance(value, torch.Tensor):
        raise unsupported("function-operand", recording.span, operator=operator)
    return recording.argument(value)


def _track_results(recording: Recording, node: Node, result: Any) -> None:
    """Track each tensor of a new result as a storage of its own, including nested results."""
    if isinstance(result, torch.Tensor):
        recording.track(result, Storage(node, result))
    elif isinstance(result, (list, tuple)):
        for index, item in enumerate(result):
            if isinstance(item, (torch.Tensor, list, tuple, torch.SymInt)):
                _track_results(recording, recording.item(node, index), item)
    elif isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        recording.symbols.define(result, node)


Subgraph = tuple[str, Any, tuple[Any, ...]]
"""A name for the module text, the function, and example inputs."""


def record_subgraph(
    recording: Recording, operator: str, body: Subgraph, symbols: OuterSymbols | None = None
) -> Program:
    """Return the function's program, recorded in one run on fake tensors.

    Raises:
        WritesToOperandError: the function writes to an input.
        UnsupportedError: it reads a traced tensor that is not an input.
    """
    label, function, inputs = body
    inner = recording.subgraph_recorder()
    if symbols is not None:
        symbols.add_inputs_to(inner, label)
    parameters = [subgraph_parameter(inner, f"{label}_{index}", value) for index, value in enumerate(inputs)]
    with inner, _indexing(inner, operator):
        result = runner_of(inner, function)(*(argument for _, argument in parameters))
    program_inputs = tuple(parameter for parameter, _ in parameters)
    check_no_operand_writes(operator, label, parameters, inner)
    leaves = pytree.tree_leaves(result, is_leaf=lambda item: item is None)
    storages = [inner.tracked(value).storage for _, value in parameters if isinstance(value, torch.Tensor)]
    outputs = tuple(
        ProgramOutput(subgraph_output(inner, leaf, storages), UserOutput(f"{label}_{index}", index))
        for index, leaf in enumerate(leaves)
    )
    nodes = reachable([output.value for output in outputs], tuple(inner.nodes))
    program_inputs += symbols.inputs_of(inner) if symbols is not None else ()
    check_no_foreign_tensor(operator, program_inputs, nodes, outputs)
    returns_one = not isinstance(result, (list, tuple, dict))
    returns_list = operator == FLEX_BACKWARD and isinstance(result, list)
    name = recording.name(f"{label}_body")
    program = Program(
        name, program_inputs, nodes, outputs, returns_single=returns_one, returns_list=returns_list
    )
    if symbols is not None:
        symbols.set_program(inner, program)
    return program


def _indexing(inner: Recording, operator: str) -> AbstractContextManager[Any]:
    """Return the mode for the function's indexing: torch disables the outer one while the operator runs."""
    if operator.startswith("flex"):
        return indices_from_tensors()
    return SymbolicCalls() if inner.fake_mode.shape_env is not None else nullcontext()


def runner_of(inner: Any, function: Any) -> Callable[..., Any]:
    """Return a callable that runs a subgraph on a recorder, with the source locations of Dynamo's nodes."""
    return FloatRunner(function, inner).run if isinstance(function, fx.GraphModule) else function


def subgraph_parameter(inner: Any, name: str, value: Any) -> tuple[ProgramInput, Any]:
    """Return one input of a subgraph and the function's argument for it."""
    argument = value
    if isinstance(value, torch.Tensor):
        value, argument = value.detach(), value.detach()
    node = Node(inner.name(name), None, (), {}, value, Origin(NO_ORIGIN, ""))
    if isinstance(value, torch.Tensor):
        inner.track(argument, Storage(node, argument))
        inner.symbols.define_sizes(node)
    elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        inner.symbols.define(value, node)
    return ProgramInput(node, UserInput(name, int(name.rsplit("_", 1)[1]))), argument


def subgraph_output(inner: Any, leaf: Any, storages: list[Storage]) -> Any:
    """Return the value of one output; a copy if it would alias an operand or an earlier output."""
    if not isinstance(leaf, torch.Tensor):
        return inner.argument(leaf)
    node, storage = inner.node_of(leaf), inner.tracked(leaf).storage
    if storage in storages or node.constant is not None:
        with inner.adding("capture", "a body of a higher-order operator returns new tensors"):
            return inner.emit(aten.clone.default, node)
    storages.append(storage)
    return node


class WritesToOperandError(UnsupportedError):
    """A subgraph writes to its operands; a marked region of this kind is inlined."""

    operands: tuple[int, ...] = ()
    """The indices of the written operands."""


def check_no_operand_writes(
    operator: str, label: str, parameters: list[tuple[ProgramInput, Any]], inner: Any
) -> None:
    """Raise WritesToOperandError if a subgraph writes to one of its operands."""
    written: list[tuple[int, Storage]] = []
    for index, (_, argument) in enumerate(parameters):
        storage = inner.tracked(argument).storage if isinstance(argument, torch.Tensor) else None
        if storage is not None and (storage.writes or storage.metadata_mutations):
            written.append((index, storage))
    if written:
        index, storage = written[0]
        change = (storage.writes or storage.metadata_mutations)[0]
        values = {"mutation": change.origin.op, "index": index, "operator": operator}
        span = change.origin.location.innermost
        error = unsupported_as(WritesToOperandError, "operand-mutation", span, **values)
        error.operands = tuple(index for index, storage in written if not storage.metadata_mutations)
        raise error


def check_no_random_op(operator: str, programs: Iterable[Program]) -> None:
    """Reject a random op in a function that a backward calls again: its numbers would be other ones."""
    for node in (node for program in programs for node in program.nodes):
        if is_random_node(node):
            raise unsupported("random-op-in-backward", node.origin.location.innermost, operator=operator)


def check_no_foreign_tensor(
    operator: str, program_inputs: tuple[ProgramInput, ...], nodes: tuple[Node, ...], outputs: tuple[Any, ...]
) -> None:
    """Reject a free tensor in a subgraph, which the operator could not pass in."""
    own = {id(parameter.node) for parameter in program_inputs} | {id(node) for node in nodes}
    for node in nodes:
        for source in node.inputs():
            if id(source) not in own:
                raise unsupported(
                    "subgraph-reads-outer-tensor",
                    node.origin.location.innermost,
                    operator=operator,
                    tensor=source.name,
                )
    for source in nodes_in(output.value for output in outputs):
        if id(source) not in own:
            raise unsupported("subgraph-returns-outer-tensor", operator=operator, tensor=source.name)
