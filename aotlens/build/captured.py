"""The captured stage: the operators in the order in which the user's code ran them, as a program that runs.

Invariant: one node per recorded call and per result of a call, in execution order; a tensor has one name from
the call that returned it to its last read or write.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from aotlens.capture.events import Call
from aotlens.capture.graph import Recording
from aotlens.capture.operators import Kind, aten, describe, is_operator
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.subclasses import inner_tensor_at, inner_tensors, is_wrapper
from aotlens.ir.names import node_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput, is_higher_order
from aotlens.ir.slots import FreeTensor, SyntheticBase, UserOutput, inner_slot
from aotlens.ir.symbols import is_data_dependent
from aotlens.torch_api.objects import FakeScriptObject, ScriptObject
from aotlens.torch_api.operators import tensor_leaves

OBJECTS = (FakeScriptObject, ScriptObject)
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True, slots=True)
class CapturedProgram:
    """The program, and the origins of its nodes."""

    program: Program
    origins: dict[int, Origin]
    """The call's origin by the identity of the node's origin that was derived from it."""
    repeated_calls: dict[int, Origin]
    """The origin of the call that a repeated view belongs to, by the identity of the view's own origin."""

    def original(self, node: Node) -> Origin:
        """Return the origin of the call that a node belongs to."""
        return self.origins.get(id(node.origin), node.origin)


def called_program(captured: Captured, values: tuple[Any, ...], name: str) -> CapturedProgram:
    """Return the recorded calls as a program over the flat inputs, with wrappers or with their inner tensors.

    `values` holds each call's result as it was when the call returned.
    """
    return CallWriter(captured).write(captured.calls, values, name)


def changes_sizes(captured: Captured) -> bool:
    """Return True if a tensor has other sizes or strides after the run than at its creation."""
    return any(_kind(call.func) is Kind.METADATA_MUTATION for call in captured.calls)


def _kind(func: Any) -> Kind | None:
    return describe(func).kind if is_operator(func) else None


def bookkeeping(captured: Captured, calls: tuple[Call, ...]) -> dict[int, int | None]:
    """Return the calls that only autograd makes: aliases that it saves, and views that it regenerates.

    By position: the position of the call that such a view repeats; None for an alias, and for a view that
    repeats an argument or is one of an implicit input. The user may make the same calls, so one whose result
    is read is none of autograd's.
    """
    unread = _like_autograds(captured, calls)
    read = _identities(captured.outputs)
    for index, call in enumerate(calls):
        if index not in unread:
            read |= _identities((call.args, call.kwargs))
    for index in reversed(tuple(unread)):
        argument_ids = _identities((calls[index].args, calls[index].kwargs))
        # a jagged tensor shares its offsets with the argument, which is no read of the result
        result_ids = _identities([calls[index].result]) - argument_ids
        if not read.isdisjoint(result_ids):
            read |= argument_ids
            del unread[index]
    return unread


def _like_autograds(captured: Captured, calls: tuple[Call, ...]) -> dict[int, int | None]:
    """Return the calls that either autograd or the user makes, as `bookkeeping` does."""
    on_implicit_input = {id(value) for value in _implicit_inputs(captured)}
    first_index: dict[tuple[Any, ...], int] = {}
    same: dict[int, int] = {}
    candidates: dict[int, int | None] = {}
    for index, (func, args, _, result, _) in enumerate(calls):
        kind = _kind(func)
        if kind is Kind.DETACH:
            candidates[index] = None
        elif kind is Kind.VIEW:
            if id(args[0]) in on_implicit_input:
                candidates[index] = None
                on_implicit_input.update(id(tensor) for tensor in tensor_leaves(result))
                continue
            if func is aten.as_strided.default and _repeats_argument(captured, *args):
                candidates[index] = None
                continue
            source = same.get(id(args[0]), id(args[0]))
            rest = (id(arg) if isinstance(arg, torch.Tensor) else str(arg) for arg in args[1:])
            first = first_index.setdefault((func, source, *rest), index)
            if first != index:
                candidates[index] = first
                pairs = zip(tensor_leaves(result), tensor_leaves(calls[first].result), strict=True)
                same |= {id(view): id(first_view) for view, first_view in pairs}
    return candidates


def _repeats_argument(captured: Captured, source: Any, *geometry: Any) -> bool:
    """Return True if `as_strided` of an argument equals another argument on the same storage."""
    inputs = captured.inputs
    beside = (
        inputs[index]
        for captured_input in inputs
        if captured_input.argument is source
        for index in captured_input.shares_storage_with
    )
    parts = (other.argument for other in beside)
    expected = [str(value) for value in geometry]
    return any(
        expected == [str(list(part.shape)), str(list(part.stride())), str(part.storage_offset())]
        for part in parts
        if part is not source and part.layout is torch.strided
    )


def _identities(values: Iterable[Any]) -> set[int]:
    """Of every tensor among the values, and of those inside a wrapper."""
    tensors = tensor_leaves(values)
    wrappers = filter(is_wrapper, tensors)
    return {*map(id, tensors), *(id(inner) for wrapper in wrappers for _, inner in inner_tensors(wrapper))}


def _implicit_inputs(captured: Captured) -> list[Any]:
    """Return the inputs that the user does not pass: free tensors, and synthetic bases.

    Every view of a synthetic base is autograd's own; one of a free tensor may be, if nothing reads it.
    """
    return [
        captured_input.argument
        for captured_input in captured.inputs
        if isinstance(captured_input.slot, (FreeTensor, SyntheticBase))
    ]


def _recorded_subgraphs(argument: Any, recorded: Any) -> Any:
    """Return an argument of a higher-order operator with its functions replaced by recorded programs."""
    if isinstance(argument, Program):
        return argument
    if isinstance(recorded, Program):
        return recorded
    if (
        isinstance(argument, (list, tuple))
        and isinstance(recorded, (list, tuple))
        and len(argument) == len(recorded)
    ):
        return [_recorded_subgraphs(item, known) for item, known in zip(argument, recorded, strict=True)]
    return argument


class CallWriter:
    """Writes calls as nodes into a recording of its own."""

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        self._recording = Recording(captured.fake_mode)
        self._node_by_id: dict[int, Node] = {}
        self._origins: dict[int, Origin] = {}
        self._inputs: list[ProgramInput] = []
        for captured_input in captured.flat_inputs:
            self._add_captured_input(captured_input)

    def write(self, calls: tuple[Call, ...], values: tuple[Any, ...], name: str) -> CapturedProgram:
        """Return the program of these calls, whose results have these values."""
        unread = bookkeeping(self._captured, calls)
        for index, (call, value) in enumerate(zip(calls, values, strict=True)):
            if index not in unread:
                self._add(call, value)
        counterparts = {
            id(calls[index].origin): calls[first_index].origin
            for index, first_index in unread.items()
            if first_index is not None
        }
        return CapturedProgram(self._program(name), self._origins, counterparts)

    def _add_captured_input(self, captured_input: CapturedInput) -> None:
        if captured_input.duplicate_of is None and captured_input.is_tensor:
            self._add_tensor(captured_input)
        elif isinstance(captured_input.argument, torch.Generator):
            self._node_by_id[id(captured_input.argument)] = self._add_input(
                captured_input.slot, captured_input.argument, None
            )
        elif isinstance(captured_input.argument, OBJECTS):
            self._node_by_id[id(captured_input.argument)] = self._add_input(
                captured_input.slot, captured_input.argument, captured_input.argument
            )
        elif captured_input.duplicate_of is None and isinstance(captured_input.argument, SYMBOLIC):
            node = self._add_input(captured_input.slot, captured_input.argument, captured_input.argument)
            self._recording.symbols.define(captured_input.argument, node)

    def _add_tensor(self, captured_input: CapturedInput) -> None:
        slot: Any = captured_input.slot
        for path, tensor in inner_tensors(captured_input.argument):
            self._add_input(inner_slot(slot, path), tensor, inner_tensor_at(captured_input.fake, path))

    def _add_input(self, slot: Any, argument: Any, val: Any) -> Node:
        node = Node(self._recording.name(node_name(slot.name)), None, (), {}, val, Origin(NO_ORIGIN, ""))
        self._inputs.append(ProgramInput(node, slot))
        if isinstance(argument, torch.Tensor):
            self._node_by_id[id(argument)] = node
            self._recording.symbols.define_sizes(node)
        return node

    def _add(self, call: Call, value: Any) -> None:
        """Add one recorded call as a node, as the user's code runs it."""
        func, args, kwargs, result, origin = call
        self._recording.origin = origin
        arguments = tuple(self._argument(arg) for arg in args)
        if is_higher_order(func):
            arguments = self._with_subgraphs(call, arguments)
        keywords = {key: self._argument(arg) for key, arg in kwargs.items()}
        if not is_operator(func) and isinstance(result, torch.Tensor):  # defined by this call
            self._node_by_id.pop(id(result), None)
        fresh = [tensor for tensor in tensor_leaves(result) if id(tensor) not in self._node_by_id]
        if not fresh and not isinstance(result, (*SYMBOLIC, torch.Generator)):
            origin, value = replace(origin, effect=True), None
            self._origins[id(origin)] = call.origin
        if func is aten.lift_fresh.default:  # the text keeps its constant for the next run
            func = aten.lift_fresh_copy.default
        node = self._recording.add_node(func, arguments, keywords, value, origin)
        if isinstance(result, torch.Generator):
            self._node_by_id[id(result)] = node
        self._name_results(node, result, value)

    def _with_subgraphs(self, call: Call, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with recorded programs for the functions of a higher-order operator."""
        nodes = self._captured.recorded.nodes
        recorded = next((node for node in nodes if node.op is call.func and node.origin is call.origin), None)
        if recorded is None or len(recorded.args) != len(arguments):
            return arguments
        return tuple(
            _recorded_subgraphs(argument, known)
            for argument, known in zip(arguments, recorded.args, strict=True)
        )

    def _name_results(self, node: Node, result: Any, value: Any) -> None:
        """Record the node of each tensor and number of a result, with a `getitem` for each item of a list."""
        if isinstance(result, SYMBOLIC):
            self._recording.symbols.define(result, node)
        elif isinstance(result, torch.Tensor):
            if self._node_by_id.setdefault(id(result), node) is node:
                self._define_new_sizes(node, result, value)
        elif isinstance(result, (list, tuple)):
            for index, item in enumerate(result):
                if isinstance(item, torch.Tensor) and id(item) not in self._node_by_id:
                    self._node_by_id[id(item)] = part = self._recording.item(node, index)
                    self._define_new_sizes(part, item, value[index])
                elif isinstance(item, SYMBOLIC):
                    self._recording.symbols.define(item, self._recording.item(node, index))
                elif isinstance(item, (list, tuple)):
                    self._name_results(self._recording.item(node, index), item, value[index])

    def _define_new_sizes(self, node: Node, result: Any, value: Any) -> None:
        """Read an unbacked size from the first result that has it.

        Later calls have it by the symbol of their own recording, which may not be that of `value`.
        """
        if any(is_data_dependent(size) for size in value.shape):
            self._recording.symbols.define_sizes(node)
            if len(result.shape) == len(value.shape):
                self._recording.symbols.define_sizes(node, result)

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            return self._node(arg)
        if isinstance(arg, torch.Generator):
            return self._node_by_id.get(id(arg)) or self._recording.generator(arg)
        if isinstance(arg, OBJECTS):
            return self._node_by_id.get(id(arg)) or self._captured.recorded.objects[id(arg)]
        if isinstance(arg, SYMBOLIC):
            return self._recording.symbols.value(arg)
        if isinstance(arg, (list, tuple)):
            return [self._argument(item) for item in arg]
        if isinstance(arg, dict):
            return {key: self._argument(item) for key, item in arg.items()}
        return arg

    def _node(self, tensor: Any) -> Node:
        known = self._node_by_id.get(id(tensor))
        if known is not None:
            return known
        constant = self._captured.recorded.tracked(tensor).node
        lifted = next(
            (captured_input for captured_input in self._captured.inputs if captured_input.node is constant),
            None,
        )
        if lifted is not None:  # a tensor from outside that became an input
            self._node_by_id[id(tensor)] = node = self._add_input(lifted.slot, None, constant.val)
            return node
        if constant.constant is None:  # torch created it unrecorded: it is its own value
            self._node_by_id[id(tensor)] = constant
            return constant
        return self._add_constant(tensor, constant.constant, constant.val)

    def _add_constant(self, tensor: Any, real: Any, val: Any) -> Node:
        origin = Origin(NO_ORIGIN, "", reason="a captured tensor")
        node = Node(self._recording.name("constant"), None, (), {}, val, origin, constant=real)
        self._recording.nodes.insert(0, node)
        self._node_by_id[id(tensor)] = node
        return node

    def _program(self, name: str) -> Program:
        named = zip(self._captured.outputs, self._captured.output_names, strict=True)
        outputs = tuple(
            output
            for index, (value, output_name) in enumerate(named)
            for output in self._results(value, UserOutput(output_name, index))
        )
        return Program(name, tuple(self._inputs), tuple(self._sizes_first()), outputs)

    def _results(self, value: Any, slot: UserOutput) -> Iterator[ProgramOutput]:
        for path, inner in inner_tensors(value):
            yield ProgramOutput(self._argument(inner), inner_slot(slot, path))

    def _sizes_first(self) -> list[Node]:
        """Sizes of inputs are read before anything can change them."""
        inputs = {id(program_input.node) for program_input in self._inputs}
        sizes = {
            id(node)
            for node in self._recording.nodes
            if node.op in (aten.sym_size.int, aten.sym_stride.int) and id(node.args[0]) in inputs
        }
        nodes = self._recording.nodes
        return [n for n in nodes if id(n) in sizes] + [n for n in nodes if id(n) not in sizes]
