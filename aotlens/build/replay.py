"""A recorded run replayed on a second recorder: the forward with other decompositions, or with none.

Invariant: the user's code does not run, and the first recording stays unchanged; a call's nodes carry the
origin of that call, so that they can be matched from stage to stage.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.analysis.records import InputAliasInfo, ViewAndMutationMeta
from aotlens.build.captured import SYMBOLIC
from aotlens.capture.events import Call
from aotlens.capture.inputs.tensor_inputs import tensor_input
from aotlens.capture.operator_fixes import KERNEL_DECOMPOSITIONS
from aotlens.capture.operators import Decompositions
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import Storage, Tracked, set_tracked
from aotlens.capture.subclasses import inner_tensors
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput
from aotlens.ir.slots import MutatedInput, UserOutput, inner_slot
from aotlens.torch_api.fake.tensors import mute_fake_tensor_log
from aotlens.torch_api.modes import below_views
from aotlens.torch_api.objects import FakeScriptObject, ScriptObject
from aotlens.torch_api.operators import python_dispatcher
from aotlens.torch_api.patches.scopes import patched
from aotlens.torch_api.patches.table import COMPILE

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Replayed:
    """The forward, recorded again."""

    program: Program
    values: tuple[Any, ...]
    """Each call's result as it was when the call returned."""


def replay(
    captured: Captured,
    meta: ViewAndMutationMeta,
    name: str,
    decompositions: Decompositions,
    without: frozenset[int],
) -> Replayed:
    """Return the forward as a pure function: new values of mutated inputs, then all results.

    Calls of these origins, by identity, are left out: nothing reads their results.
    """
    recorder = Recorder(captured.fake_mode, decompositions)
    player = _Player(recorder)
    with captured.fake_mode:
        inputs = player.inputs(captured)
    with _below_autograd(recorder, captured.is_symbolic):
        values = [
            _detached(call.result if id(call.origin) in without else player.play(call))
            for call in captured.calls
        ]
        with recorder.adding(name, "an output or an input, regenerated after a write"):
            outputs = (*player.written(captured, meta), *player.results(captured))
    return Replayed(Program(name, inputs, tuple(recorder.nodes), outputs), tuple(values))


def written_inputs(
    captured: Captured, meta: ViewAndMutationMeta
) -> Iterator[tuple[InputAliasInfo, MutatedInput]]:
    """Yield the inputs whose data changes in the call, except those that a synthetic base updates."""
    for info in meta.inputs:
        if info.mutates_data and info.base is None:
            yield info, MutatedInput(captured.inputs[info.index].slot.name, info.index)


@contextmanager
def _below_autograd(recorder: Recorder, dynamic: bool) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(mute_fake_tensor_log())
        stack.enter_context(patched(COMPILE))
        if dynamic:
            stack.enter_context(python_dispatcher(KERNEL_DECOMPOSITIONS))
        stack.enter_context(recorder.fake_mode)
        stack.enter_context(below_views())
        yield


def _detached(result: Any) -> Any:
    """Return an alias that has the current sizes."""
    if isinstance(result, torch.Tensor):
        return result.detach()
    if isinstance(result, (list, tuple)):
        return type(result)(_detached(item) for item in result)
    return result


class _Player:
    """Maps tensors of the old recording to those of the new one."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._replayed: dict[int, Any] = {}
        """The new value by the identity of the old one."""
        self._storages: dict[int, Storage] = {}
        """The new storage of each graph input by the identity of the old one."""

    def inputs(self, captured: Captured) -> tuple[ProgramInput, ...]:
        """Return new graph inputs; inputs that the graph does not take are views of their base."""
        program_inputs: list[ProgramInput] = []
        for captured_input in captured.inputs:
            if captured_input.is_graph_input and captured_input.is_tensor:
                program_inputs += self._tensors(captured, captured_input)
            elif captured_input.is_graph_input:
                program_inputs.append(self._number(captured_input))
        for captured_input in captured.inputs:
            if captured_input.base is not None and captured_input.duplicate_of is None:
                self._view_of_base(captured_input)
        return tuple(program_inputs)

    def _tensors(self, captured: Captured, captured_input: CapturedInput) -> Iterator[ProgramInput]:
        """One, or those inside a wrapper."""
        for (path, argument), node in zip(
            inner_tensors(captured_input.argument), captured_input.nodes, strict=True
        ):
            slot = inner_slot(captured_input.slot, path)
            new = tensor_input(self._recorder, slot, node.val, None, node.name)
            assert new.node is not None  # as of every graph input
            assert new.storage is not None  # as of every tensor
            new.storage.inputs = (0,)
            self._storages[id(_storage(captured, captured_input, path, argument))] = new.storage
            self.pair(argument, new.argument)
            yield ProgramInput(new.node, slot)

    def _number(self, captured_input: CapturedInput) -> ProgramInput:
        """Return a size, a generator, or a torchbind object."""
        assert captured_input.node is not None  # a graph input
        name = self._recorder.name(captured_input.node.name)
        node = Node(name, None, (), {}, captured_input.node.val, Origin(NO_ORIGIN, ""))
        if isinstance(captured_input.argument, (torch.Generator, FakeScriptObject, ScriptObject)):
            self._recorder.objects[id(captured_input.argument)] = node
        else:
            self._recorder.symbols.define(captured_input.argument, node)
        return ProgramInput(node, captured_input.slot)

    def _view_of_base(self, captured_input: CapturedInput) -> None:
        assert captured_input.storage is not None  # as of every tensor
        storage = self._storages[id(captured_input.storage)]
        chain = next(
            chain
            for chain, node in captured_input.storage.overlapping_inputs.items()
            if node is captured_input.node
        )
        with torch.no_grad(), below_views():
            argument = captured_input.fake.detach()
        never = -1  # so that its node is found at its first use
        set_tracked(argument, Tracked(storage, chain, storage.base, never))
        self.pair(captured_input.argument, argument)

    def written(self, captured: Captured, meta: ViewAndMutationMeta) -> Iterator[ProgramOutput]:
        """Yield the final values of the storages of mutated inputs."""
        for info, slot in written_inputs(captured, meta):
            captured_input = captured.inputs[info.index]
            for path, argument in inner_tensors(captured_input.argument):
                storage = self._storages[id(_storage(captured, captured_input, path, argument))]
                yield ProgramOutput(storage.base, inner_slot(slot, path))

    def results(self, captured: Captured) -> Iterator[ProgramOutput]:
        """Yield the nodes, or plain values, of the old recording's results."""
        for index, (value, name) in enumerate(zip(captured.outputs, captured.output_names, strict=True)):
            for path, inner in inner_tensors(value):
                slot = inner_slot(UserOutput(name, index), path)
                yield ProgramOutput(self._recorder.argument(self._replayed.get(id(inner), inner)), slot)

    def play(self, call: Call) -> Any:
        """Run a call of the old recording on the new values, and map its results."""
        result, arguments = call.result, tuple(self._argument(arg) for arg in call.args)
        keywords = {key: self._argument(arg) for key, arg in call.kwargs.items()}
        is_number = call.func is aten._local_scalar_dense.default and isinstance(result, SYMBOLIC)
        if is_number and result.node.has_hint():  # the frontend's own symbol
            self._recorder.origin = call.origin
            self._recorder.read_number(arguments[0], result)
            return result
        new = self._recorder.replay_call(call._replace(args=arguments, kwargs=keywords))
        self.pair(result, new)
        return new

    def pair(self, old: Any, new: Any) -> None:
        """Map the old value to the new one from here on."""
        if isinstance(old, torch.Tensor):
            self._replayed[id(old)] = new
            for before, after in zip(old.shape, new.shape, strict=False):
                self._same_number(before, after)
        elif isinstance(old, SYMBOLIC):
            self._same_number(old, new)
        elif isinstance(old, (list, tuple)):
            for before, after in zip(old, new, strict=True):
                self.pair(before, after)

    def _same_number(self, old: Any, new: Any) -> None:
        """Map an unbacked number, which has another symbol in each recording."""
        if isinstance(old, SYMBOLIC) and isinstance(new, SYMBOLIC) and old.node.expr != new.node.expr:
            value = self._recorder.symbols.value(new)
            if hasattr(value, "op"):
                self._recorder.symbols.define(old, value)

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            return self._replayed.get(id(arg), arg)
        if isinstance(arg, (list, tuple)):
            return [self._argument(item) for item in arg]
        if isinstance(arg, dict):
            return {key: self._argument(item) for key, item in arg.items()}
        return arg


def _storage(captured: Captured, captured_input: CapturedInput, path: tuple[str, ...], argument: Any) -> Any:
    """Return the storage of a recorded input, or of its inner tensor."""
    return captured.recorded.tracked(argument).storage if path else captured_input.storage
