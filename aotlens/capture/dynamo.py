"""The Dynamo frontend: run Dynamo's graph node by node, with the source locations that Dynamo recorded."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from aotlens.capture.inputs.fake_inputs import fake_of_input
from aotlens.capture.inputs.module_tensors import call_with_tensors, module_tensors
from aotlens.capture.modes import Settings, SplitRegion
from aotlens.capture.operators import Decompositions
from aotlens.capture.provenance.dynamo_nodes import LocatedRunner
from aotlens.capture.provenance.frames import calling_frames, is_installed_file, is_user_file, user_qualname
from aotlens.capture.provenance.variables import variables_of_nodes
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, FlatCall, OpenInput, Subject
from aotlens.capture.run import capture_run
from aotlens.capture.subclasses import is_wrapper
from aotlens.capture.symbols.numbers import FloatRunner, fake_mode_for
from aotlens.ir.slots import Buffer, FlatInput, Parameter, SymIntInput, UserInput
from aotlens.model.report import AFTER, GraphId, Span
from aotlens.torch_api.dynamo.state import TracingContext, compile_id, is_static_input, resolve_dynamo_source
from aotlens.torch_api.fake.tensors import FakeTensorMode, detect_fake_mode


@dataclass(frozen=True, slots=True)
class GraphCall:
    """A Dynamo graph with the flat values that it is compiled for."""

    graph: fx.GraphModule
    subject: Subject
    values: tuple[Any, ...]
    """The graph module's own tensors, then the inputs."""
    slots: tuple[FlatInput, ...]
    owned: dict[str, Any]
    """The graph module's own tensors by name; the first of `values`."""
    fake_mode: FakeTensorMode
    dynamic: bool
    """Whether any input has a symbolic size."""

    def fakes(self) -> list[Any]:
        """Return the fake tensors of the values; other values unchanged."""
        pairs = zip(self.values, self.slots, strict=True)
        with self.fake_mode:
            return [
                fake_of_input(self.fake_mode, value, slot, self.dynamic)
                if isinstance(value, torch.Tensor)
                else value
                for value, slot in pairs
            ]


def graph_call(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> GraphCall:
    """Return the flat call of a graph before it runs."""
    owned = module_tensors(gm)
    slots = _owned_slots(gm, owned)
    for node in gm.graph.find_nodes(op="placeholder"):
        slots.append(_slot(node, len(slots)))
    return GraphCall(
        gm,
        subject_of(gm),
        (*owned.values(), *example_inputs),
        tuple(slots),
        owned,
        _fake_mode(example_inputs),
        _is_dynamic(example_inputs),
    )


def capture_graph_module(
    call: GraphCall, decompositions: Decompositions, split_region: SplitRegion, *, floats_as_tensors: bool
) -> tuple[Captured, Recorder]:
    """Run Dynamo's graph once on fake tensors; inputs and outputs are flat.

    With `floats_as_tensors` the graph reads no Python float: see `aotlens.capture.symbols.numbers`.
    """
    settings = Settings(call.fake_mode, decompositions, call.dynamic, split_region=split_region)
    gm, owned = call.graph, call.owned

    def run(recorder: Recorder, inputs: tuple[OpenInput, ...]) -> Any:
        flat = [captured_input.argument for captured_input in inputs]
        attributes = dict(zip(map(id, owned.values()), flat, strict=False))
        recorder.floats_as_tensors = floats_as_tensors
        return _Runner(gm, recorder, attributes).run(*_with_ragged_sizes(gm, flat[len(owned) :]))

    flat_call = FlatCall(list(call.values), call.slots, None, run)
    captured, builder = capture_run(call.subject, flat_call, settings)
    structure = replace(captured.structure, result=None)
    return replace(captured, structure=structure, variables=variables_of_nodes(gm)), builder


def _with_ragged_sizes(gm: fx.GraphModule, inputs: list[Any]) -> list[Any]:
    """Return the inputs with each of Dynamo's ragged size symbols replaced by that of the wrapper's fake."""
    wrappers = [value for value in inputs if is_wrapper(value)]
    if not wrappers or not any(isinstance(value, torch.SymInt) for value in inputs):
        return inputs
    known = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    ragged = {
        str(size): own
        for value, example in zip(inputs, known, strict=True)
        if is_wrapper(value)
        for own, size in zip(value.shape, getattr(example, "shape", value.shape), strict=True)
        if isinstance(own, torch.SymInt) and own.node.is_nested_int()
    }
    return [
        ragged.get(str(example), value) if isinstance(value, torch.SymInt) else value
        for value, example in zip(inputs, known, strict=True)
    ]


class _Runner(FloatRunner):
    """Run Dynamo's graph, with the graph module's tensors replaced by the recording's inputs."""

    def __init__(
        self,
        gm: fx.GraphModule,
        recorder: Recorder,
        attributes: dict[int, Any],
    ) -> None:
        super().__init__(gm, recorder)
        self._attributes = attributes

    def nested_runner(self, body: fx.GraphModule) -> LocatedRunner:
        return _Runner(body, self.recorder, self._attributes)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        attribute = super().get_attr(target, args, kwargs)
        return self._attributes.get(id(attribute), attribute)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        inner = self.fetch_attr(target)
        tensors = {name: self._attributes[id(tensor)] for name, tensor in module_tensors(inner).items()}
        return call_with_tensors(inner, tensors, args, kwargs)


def _fake_mode(example_inputs: Sequence[Any]) -> FakeTensorMode:
    """Return Dynamo's fake mode; a new one for a graph that is compiled outside Dynamo, to verify it.

    The inputs that Dynamo made symbols are plain numbers then, and become symbols of the new mode.
    """
    context = TracingContext.try_get()
    fake_mode = detect_fake_mode(example_inputs) or (context.fake_mode if context is not None else None)
    if fake_mode is not None:
        return fake_mode
    has_numbers = any(isinstance(value, (int, float)) for value in example_inputs)
    return fake_mode_for((), symbolic=has_numbers)


def _is_dynamic(example_inputs: Sequence[Any]) -> bool:
    """Return True if any input is, or has, a symbolic size."""
    return any(
        isinstance(value, torch.SymInt)
        or (isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape))
        for value in example_inputs
    )


def _source(node: fx.Node) -> Any:
    """Return Dynamo's source of the input in the user's frame; None for a graph from elsewhere."""
    source = getattr(node, "_dynamo_source", None)
    if source is None and "grapharg" in node.meta:
        source = getattr(node.meta["grapharg"], "source", None)
    return source


def _slot(node: fx.Node, index: int) -> FlatInput:
    text = _source_text(_source(node)) or node.name
    if isinstance(node.meta.get("example_value"), torch.SymInt):
        return SymIntInput(user_name(text), index)
    fqn, members = module_path(text), {kind for kind, _ in _MEMBER.findall(text)}
    if "_parameters" in members:
        return Parameter(fqn, index, fqn)
    if "_buffers" in members:
        return Buffer(fqn, index, fqn)
    return UserInput(user_name(text), index, is_static=is_static_input(node))


def _owned_slots(gm: fx.GraphModule, owned: dict[str, Any]) -> list[FlatInput]:
    """Return slots for the graph module's own tensors, with the user's names.

    Dynamo registers an optimizer's parameters and state on the graph of its `step`.  A module's parameters
    are inputs of the graph.
    """
    sources = getattr(gm, "_param_name_to_source", None) or {}
    slots: list[FlatInput] = []
    for index, (fqn, tensor) in enumerate(owned.items()):
        text = _source_text(sources.get(fqn))
        kind = Parameter if isinstance(tensor, torch.nn.Parameter) else Buffer
        slots.append(kind(module_path(text) or user_name(text) or fqn, index, fqn))
    return slots


def _source_text(source: Any) -> str:
    """Return Dynamo's expression of a source, with keys of dicts by value instead of by position."""
    text, step = _source_name(source), source
    while step is not None:
        key = getattr(step, "index", None)
        if _KEY.search(_source_name(key)) and isinstance(value := resolve_dynamo_source(key), (str, int)):
            text = text.replace(f"[{_source_name(key)}]", f"[{value!r}]")
        step = getattr(step, "base", None)
    return text


def _source_name(source: Any) -> str:
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


_KEY = re.compile(r"list\(dict\.keys\([^()]*\)\)\[(\d+)\]")
"""Dynamo's notation for the n-th key of a dict whose keys are not constants."""
_MEMBER = re.compile(r"(_modules|_parameters|_buffers)(?:'\])?\['([^']+)'\]")
"""One step into a module; `__dict__['_modules']['fc']` if the module defines `__getattr__`."""


_ON_STACK = re.compile(r"___stack(\d+)")
"""Dynamo's name of an unfinished expression's value, which the resume function takes."""


def module_path(source: str) -> str:
    """Convert `L['self']._modules['fc']._parameters['weight']` to `fc.weight`."""
    return ".".join(name for _, name in _MEMBER.findall(source))


def user_name(source: str) -> str:
    """Convert `L['batch']['ids']` to `batch['ids']`, and name what is on the stack at a graph break.

    Other names are returned unchanged.
    """
    source = _ON_STACK.sub(
        lambda match: "value_at_break" + (f"_{match[1]}" if match[1] != "0" else ""), source
    )
    while (shorter := _KEY.sub(r"\1", source)) != source:
        source = shorter
    match = re.match(r"^[LG]\['([^']+)'\](.*)$", source)
    if match is None:
        return source
    return match.group(1) + match.group(2)


def subject_of(gm: fx.GraphModule) -> Subject:
    """Return the compiled function: the user's, or one of torch's layers."""
    return _subject(gm) or _subject_of_layer(gm)


def _subject(gm: fx.GraphModule) -> Subject | None:
    """Return the outermost user function that Dynamo compiled; None if it is torch's own.

    A decorator from a package, around the user's function, computes nothing itself and is skipped.
    """
    stacks = [codes for node in gm.graph.nodes if (codes := node.meta.get("aotlens_codes"))]
    users = [[code for code in codes if is_user_file(code[1])] for codes in stacks]
    if not all(users):
        return None
    while users and _is_decorator(users):
        users = [codes[:-1] for codes in users]
    for codes in users:
        qualname, file, line = codes[-1]
        return _named_subject(gm, user_qualname(qualname, file), Span(file, line, 0, line, 0))
    return None


def _is_decorator(users: list[list[tuple[str, str, int]]]) -> bool:
    """Return True if a package's inner function calls one function that computes everything."""
    qualname, file, _ = users[0][-1]
    called = {codes[-2][:2] if len(codes) > 1 else None for codes in users}
    return "<locals>" in qualname and is_installed_file(file) and len(called) == 1 and None not in called


def _subject_of_layer(gm: fx.GraphModule) -> Subject:
    """Describe one of torch's layers that is compiled itself, at the line that calls it."""
    codes = next(
        (node_codes for node in gm.graph.nodes if (node_codes := node.meta.get("aotlens_codes"))), ()
    )
    names = [user_qualname(name, file) for name, file, _ in codes]
    layers = [name for name in names if name.partition(AFTER)[0].endswith(".forward")]
    name = (layers or names or [type(gm).__name__])[-1]
    frames = calling_frames()
    return replace(_named_subject(gm, name, frames.innermost), called_at=frames)


def _named_subject(gm: fx.GraphModule, name: str, span: Span | None) -> Subject:
    """Return the subject; `Net.forward` is called `Net`, and a resume function retains its suffix."""
    owner, after, line = name.partition(AFTER)
    short = owner.removesuffix(".forward").rsplit(".", 1)[-1] + after + line
    return Subject(gm, short, name, "dynamo", span, graph=_graph_id())


def _graph_id() -> GraphId | None:
    """Return the ids of Dynamo's current frame, compilation and attempt."""
    compilation = compile_id()
    return GraphId(*compilation) if compilation is not None else None
