"""One function of a higher-order operator, run on a recorder of its own and turned into a program.

Invariant: a program reads only its inputs, also for symbolic sizes of the outer graph, and none of its
outputs aliases an input or another output.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from aotlens.capture.graph import Recording
from aotlens.capture.operators import aten
from aotlens.capture.storage import Storage
from aotlens.capture.symbols.numbers import FloatRunner
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput, nodes_in, reachable
from aotlens.ir.slots import GraphOutput, UserInput, UserOutput
from aotlens.torch_api.autograd import set_version
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported

FLEX_BACKWARD = "flex_attention_backward"
"""The operator that requires a list as the result of one of its functions."""


class Body:
    """One function of an operator, its inputs, and the outputs of its program so far."""

    def __init__(self, inner: Recording, operator: str, label: str, operands: Sequence[Any]) -> None:
        self.inner, self.operator, self.label, self.name = inner, operator, label, label
        parameters = [_parameter(inner, f"{label}_{index}", value) for index, value in enumerate(operands)]
        self.inputs: list[ProgramInput] = [program_input for program_input, _ in parameters]
        self.arguments = tuple(argument for _, argument in parameters)
        self.symbol_inputs: dict[Any, ProgramInput] = {}
        """Its inputs for symbols of the outer recording."""
        self.outputs: list[ProgramOutput] = []
        self._storages = self._storages_of(self.arguments)
        """The storages of inputs and outputs, which no further output may share."""
        self._returns: type = tuple
        """What the program returns: a tuple or a list (also of fx's kind) of its outputs, or a tensor."""

    def run(self, function: Callable[..., Any]) -> Any:
        """Run the function once, and return its result; call it with the recorder on the stack of modes.

        The arguments are aliases of the operands, so their version counters, which they share, are restored.
        """
        tensors = [value for value in self.arguments if isinstance(value, torch.Tensor)]
        counted = [tensor for tensor in tensors if not tensor.is_inference()]
        versions = [tensor._version for tensor in counted]
        try:
            return runner_of(self.inner, function)(*self.arguments)
        finally:
            set_version(counted, versions)

    def add_input(self, program_input: ProgramInput, argument: Any) -> None:
        """Add an input that the operator does not pass to the function: a tangent."""
        self.inputs.append(program_input)
        self._storages += self._storages_of((argument,))

    def add_results(self, result: Any) -> list[Any]:
        """Add an output for each leaf of the function's result; return the leaves."""
        self._returns = torch.Tensor if not isinstance(result, (list, tuple, dict)) else type(result)
        leaves = pytree.tree_leaves(result, is_leaf=lambda item: item is None)
        for index, leaf in enumerate(leaves):
            self.add_output(leaf, UserOutput(f"{self.label}_{index}", index))
        return leaves

    def add_output(self, leaf: Any, slot: GraphOutput) -> None:
        """Add one output; a copy if it would alias an input or an earlier output."""
        value = leaf if isinstance(leaf, torch.Tensor) else self.inner.argument(leaf)
        if isinstance(leaf, torch.Tensor):
            value, storage = self.inner.node_of(leaf), self.inner.tracked(leaf).storage
            if storage in self._storages or value.constant is not None:
                value = self._copy(value)
            self._storages.append(storage)
        self.outputs.append(ProgramOutput(value, slot))

    def add_final_values(self, operands: Iterable[int]) -> None:
        """Add outputs for the final values of operands, whether this function writes to them or not."""
        self._returns = tuple
        for operand in operands:
            value = self._copy(self.inner.node_of(self.arguments[operand]))  # all branches need one layout
            index = len(self.outputs)
            self.outputs.append(ProgramOutput(value, UserOutput(f"{self.label}_{index}", index)))

    def move_inputs(self, indices: Sequence[int], position: int) -> None:
        """Move some inputs to a position before them."""
        moved, rest = [self.inputs[index] for index in indices], self.inputs[position:]
        self.inputs[position:] = [*moved, *(item for item in rest if item not in moved)]

    def program(self) -> Program:
        """Return the function's program.

        Raises:
            UnsupportedError: the function reads a traced tensor that is not an input.
        """
        inputs, outputs = tuple(self.inputs), tuple(self.outputs)
        nodes = reachable([output.value for output in outputs], tuple(self.inner.nodes))
        _check_no_foreign_tensor(self.operator, inputs, nodes, outputs)
        return Program(
            self.name,
            inputs,
            nodes,
            outputs,
            returns_single=self._returns is torch.Tensor,
            returns_list=issubclass(self._returns, list) and self.operator == FLEX_BACKWARD,
        )

    def writes(self) -> dict[int, Storage]:
        """Return the storages that the function writes to, by the operand's index."""
        storages = (
            (index, self.inner.tracked(argument).storage)
            for index, argument in enumerate(self.arguments)
            if isinstance(argument, torch.Tensor)
        )
        return {index: storage for index, storage in storages if storage.writes or storage.metadata_mutations}

    def check_no_writes(self) -> None:
        """Raise UnsupportedError if the function writes to an operand."""
        for index, storage in self.writes().items():
            change = (storage.writes or storage.metadata_mutations)[0]
            values = {"mutation": change.origin.op, "index": index, "operator": self.operator}
            span = change.origin.location.innermost
            raise unsupported("operand-mutation", span, **values)

    def _storages_of(self, values: Iterable[Any]) -> list[Storage]:
        return [self.inner.tracked(value).storage for value in values if isinstance(value, torch.Tensor)]

    def _copy(self, node: Node) -> Any:
        with self.inner.adding("capture", "a body of a higher-order operator returns new tensors"):
            return self.inner.emit(aten.clone.default, node)


def runner_of(inner: Recording, function: Any) -> Callable[..., Any]:
    """Return a callable that runs a subgraph on a recorder, with the source locations of Dynamo's nodes."""
    return FloatRunner(function, inner).run if isinstance(function, fx.GraphModule) else function


def _parameter(inner: Recording, name: str, value: Any) -> tuple[ProgramInput, Any]:
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


class OuterSymbols:
    """The outer symbols that the functions of one call read, in the order of their first use."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._operands: dict[Any, Any] = {}
        """The operand for each symbol."""

    @property
    def operands(self) -> tuple[Any, ...]:
        return tuple(self._operands.values())

    def lift_into(self, body: Body) -> None:
        """Turn the symbols that a function's recording lacks into its inputs."""
        inner = body.inner

        def lift_symbol(symbol: Any) -> Node:
            number = self._recording.symbols.of_symbol(symbol).val
            if symbol not in self._operands:
                self._operands[symbol] = self._operand(number)
            body.symbol_inputs[symbol] = _input(inner, body.label, self._operands[symbol])
            node = body.symbol_inputs[symbol].node
            if isinstance(number, torch.SymInt):
                return node
            return inner.add_node(aten._local_scalar_dense.default, (node,), {}, number)

        inner.symbols.lift_symbol = lift_symbol

    def add_inputs_to(self, body: Body) -> None:
        """Add the body's inputs for these symbols, including those that only other functions read."""
        body.inputs += (
            body.symbol_inputs.get(symbol) or _input(self._recording, body.label, operand)
            for symbol, operand in self._operands.items()
        )

    def _operand(self, number: Any) -> Any:
        """Return the operand for an outer symbol: a size itself; for a float, a tensor of the outer graph."""
        if isinstance(number, torch.SymInt):
            return number
        recording, func, kwargs = self._recording, aten.scalar_tensor.default, {"dtype": torch.float64}
        node = recording.emit(func, recording.symbols.value(number), **kwargs)
        operand = recording.new_alias(node)
        if not recording.in_backward:
            recording.add_call((func, (number,), kwargs, operand, recording.origin))
        return operand


def _input(recording: Recording, label: str, operand: Any) -> ProgramInput:
    name = recording.name(f"{label}_number")
    value = operand.detach() if isinstance(operand, torch.Tensor) else operand
    return ProgramInput(Node(name, None, (), {}, value, Origin(NO_ORIGIN, "")), UserInput(name, 0))


def _check_no_foreign_tensor(
    operator: str, inputs: tuple[ProgramInput, ...], nodes: tuple[Node, ...], outputs: Iterable[ProgramOutput]
) -> None:
    """Reject a free tensor that a subgraph reads or returns, which the operator could not pass in."""
    own = {id(parameter.node) for parameter in inputs} | {id(node) for node in nodes}
    reads = [(source, node.origin.location.innermost) for node in nodes for source in node.inputs()]
    returned = [(source, None) for source in nodes_in(output.value for output in outputs)]
    for source, span in (*reads, *returned):
        if id(source) not in own:
            raise unsupported("subgraph-uses-outer-tensor", span, operator=operator, tensor=source.name)
