"""The memory curve: live bytes at each node of the forward and then of the backward, and their owners.

Invariant: bytes are counted by storage. A view adds nothing, and memory that the caller owns before the call
(arguments, parameters, buffers) is not counted; memory allocated by the call is, until its last reference
ends: the caller owns results and gradients, and a name ends where the module text deletes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch

from aotlens.build.gradient_memory import returned_gradients
from aotlens.build.kernel_memory import working_bytes
from aotlens.capture.operators import Kind, describe
from aotlens.codegen.in_place_updates import with_in_place_updates
from aotlens.ir.layers import Layers
from aotlens.ir.program import Node, Program, getitem, is_higher_order, last_uses
from aotlens.ir.slots import SavedForBackward, SavedInput
from aotlens.model.partition import LiveKind, LiveValue, Memory
from aotlens.model.source import Phase, Span
from aotlens.partition.records import ForwardBackward, Partitioned
from aotlens.partition.storages import is_view, node_bytes, value_bytes


@dataclass(slots=True, eq=False)
class _Storage:
    """One storage that the call allocates; its lifetime is completed while the programs are traversed."""

    maker: Node
    size_bytes: int
    first: int
    """The moment of its allocation."""
    last: int | None
    """The last moment with a reference to it; None while it is unknown, or if it outlives the step."""
    kind: LiveKind = "temporary"
    name: str | None = None
    """The user's name of the result or gradient in it."""


ValueStorage = Any
"""The storage of a value: a storage, None for the caller's or the module's, a list for a bundle."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """One step of the timeline."""

    name: str
    node: Node | None
    phase: Phase
    working_bytes: int = 0
    """Memory that its kernel allocates while it runs."""

    @property
    def span(self) -> Span | None:
        return self.node.origin.location.innermost if self.node is not None else None


@dataclass(slots=True)
class _Timeline:
    """Forward, then backward, then the handing out of gradients."""

    moments: list[_Moment] = field(default_factory=list)
    storages: list[_Storage] = field(default_factory=list)

    def make(self, maker: Node, size_bytes: int, kind: LiveKind = "temporary") -> _Storage:
        made = _Storage(maker, size_bytes, len(self.moments), None, kind)
        self.storages.append(made)
        return made

    def play(self, program: Program, phase: Phase, storage_of: dict[int, ValueStorage]) -> None:
        """Traverse a program whose inputs have the storages of `storage_of`, and record those of all its
        values."""
        dead = last_uses(program)
        for index, node in enumerate(program.nodes):
            storage_of[id(node)] = self._storage_of_value(node, storage_of)
            for gone in dead.get(index, ()):
                for storage in _storages(storage_of.get(id(gone))):
                    storage.last = len(self.moments)
            if node.op is not None:
                working = _subgraph_bytes(node) if is_higher_order(node.op) else working_bytes(node)
                self.moments.append(_Moment(node.name, node, phase, working))

    def live_bytes(self) -> list[int]:
        """At each moment, its kernel's working memory included."""
        change = [0] * (len(self.moments) + 1)
        for storage in self.storages:
            change[storage.first] += storage.size_bytes
            if storage.last is not None:
                change[storage.last + 1] -= storage.size_bytes
        return [
            live + moment.working_bytes
            for moment, live in zip(self.moments, accumulate(change), strict=False)
        ]

    def _storage_of_value(self, node: Node, storage_of: dict[int, ValueStorage]) -> ValueStorage:
        if node.op is None:
            return None
        if node.op is getitem:
            return _item(node, storage_of.get(id(node.args[0])))
        if is_view(node) or _writes(node):
            return storage_of.get(id(node.args[0]))
        if isinstance(node.val, torch.Tensor):
            return self.make(node, node_bytes(node))
        return self._bundle(node, node.val)

    def _bundle(self, node: Node, val: Any) -> ValueStorage:
        if isinstance(val, (list, tuple)):
            return [self._bundle(node, item) for item in val]
        return self.make(node, value_bytes(val)) if isinstance(val, torch.Tensor) else None


def _subgraph_bytes(node: Node) -> int:
    """Return the bytes that a subgraph of a higher-order operator allocates beyond its results; the most of
    several."""
    most = 0
    for subgraph in node.subgraphs():
        timeline = _Timeline()
        timeline.play(subgraph, "forward", {})
        most = max(most, *timeline.live_bytes(), 0)
    return max(0, most - value_bytes(node.val))


def _writes(node: Node) -> bool:
    """Return True if the value is an argument that the operator writes to."""
    return hasattr(node.op, "_schema") and describe(node.op).kind is Kind.MUTATION


def _item(node: Node, bundle: ValueStorage) -> ValueStorage:
    """One result of several; its storage is called by its own name from here on."""
    if not isinstance(bundle, list):
        return bundle
    index = node.args[1]
    if isinstance(index, str):  # a Triton kernel's results are named by argument
        index = node.args[0].kwargs["tensors_to_clone"].index(index)
    held = bundle[index]
    if isinstance(held, _Storage):
        held.maker = node
    return held


def _storages(held: ValueStorage) -> Iterator[_Storage]:
    if isinstance(held, _Storage):
        yield held
    elif isinstance(held, list):
        for item in held:
            yield from _storages(item)


def memory_of(parts: Partitioned) -> Memory:
    """Predicted from the graphs' own order; kernels that a backend fuses use less."""
    timeline, forward_nodes = _timeline(parts)
    return _described(parts, timeline, forward_nodes)


def predicted_peak(parts: ForwardBackward) -> int:
    """Return the peak alone, in bytes."""
    return max(_timeline(parts)[0].live_bytes(), default=0)


def _timeline(parts: ForwardBackward) -> tuple[_Timeline, int]:
    """Return the whole step, and the number of its moments in the forward."""
    timeline = _Timeline()
    storage_of: dict[int, ValueStorage] = {}
    phase: Phase = "inference" if parts.backward is None else "forward"
    timeline.play(with_in_place_updates(parts.forward), phase, storage_of)
    forward_nodes = len(timeline.moments)
    _end_forward(parts, timeline, storage_of)
    if parts.backward is not None:
        _play_backward(parts, parts.backward, timeline, storage_of)
    return timeline, forward_nodes


def _end_forward(parts: ForwardBackward, timeline: _Timeline, storage_of: dict[int, ValueStorage]) -> None:
    """Only results and saved values go on."""
    end = len(timeline.moments) - 1
    for out in parts.forward.outputs:
        for storage in _storages(storage_of.get(id(out.value))):
            storage.last, storage.kind = end, "new value of an input"
    for out in parts.forward.outputs:
        if isinstance(out.slot, SavedForBackward):
            for storage in _storages(storage_of.get(id(out.value))):
                storage.last, storage.kind = None, "saved"
    for saved_input in parts.saved_inputs:
        for storage in _storages(storage_of.get(id(saved_input.node))):
            storage.last, storage.kind = None, "saved"
    for out in reversed(parts.joint.returned_outputs):
        for storage in _storages(storage_of.get(id(out.value))):
            storage.last, storage.kind, storage.name = None, "result", out.slot.name


def _play_backward(
    parts: ForwardBackward, program: Program, timeline: _Timeline, forward: dict[int, ValueStorage]
) -> None:
    results = [storage for storage in timeline.storages if storage.kind == "result"]
    storage_of: dict[int, ValueStorage] = {}
    for program_input in program.inputs:
        if isinstance(program_input.slot, SavedInput):
            storage_of[id(program_input.node)] = forward.get(id(program_input.node))
        else:  # autograd holds it until the backward returns
            storage_of[id(program_input.node)] = timeline.make(
                program_input.node, node_bytes(program_input.node), "incoming gradient"
            )
    timeline.play(program, "backward", storage_of)
    end = len(timeline.moments) - 1
    for storage in timeline.storages:
        if storage.last is None and storage.kind == "saved":
            storage.last = end
        if storage.kind == "incoming gradient":
            storage.last = None
    for storage in results:  # also one that the backward read last: it is the caller's
        storage.last = None
    _pass_gradients_to_leaves(parts, timeline, storage_of)


def _pass_gradients_to_leaves(
    parts: ForwardBackward, timeline: _Timeline, storage_of: dict[int, ValueStorage]
) -> None:
    """Hand each gradient to its leaf: as it is, or as a copy, after which the gradient is freed."""
    gradients = returned_gradients(parts)
    passed = {
        id(storage)
        for gradient in gradients
        if not gradient.copied_bytes
        for storage in _storages(storage_of[id(gradient.node)])
    }
    for gradient in gradients:
        now = len(timeline.moments)
        for storage in _storages(storage_of[id(gradient.node)]):
            owned = storage.kind in ("result", "incoming gradient")
            if not owned:
                storage.kind, storage.name = "gradient", f"gradient of {gradient.name}"
            storage.last = None if owned or id(storage) in passed else now
        if gradient.copied_bytes:
            timeline.make(
                gradient.node, gradient.copied_bytes, "gradient"
            ).name = f"gradient of {gradient.name}"
            timeline.moments.append(_Moment(f"gradient of {gradient.name}", None, "backward"))


def _described(parts: Partitioned, timeline: _Timeline, forward_nodes: int) -> Memory:
    """Return the curve, its peak, and the values alive there, the largest first."""
    moments = timeline.moments
    curve = [(moment.name, live) for moment, live in zip(moments, timeline.live_bytes(), strict=True)]
    if not curve:
        return Memory(0, (), ())
    top = max(range(len(curve)), key=lambda index: curve[index][1])
    rows = sorted(_alive(parts, timeline, top), key=lambda row: -row.bytes)
    peak = moments[top]
    return Memory(
        peak_bytes=curve[top][1],
        curve=tuple(curve),
        live_at_peak=tuple(rows),
        peak_node=peak.name,
        peak_phase=peak.phase,
        peak_span=peak.span,
        forward_nodes=forward_nodes,
        held_bytes=sum(
            storage.size_bytes
            for storage in timeline.storages
            if storage.first < forward_nodes and (storage.last is None or storage.last >= forward_nodes)
        ),
    )


def _alive(parts: Partitioned, timeline: _Timeline, top: int) -> Iterator[LiveValue]:
    names, layers = _variable_names(parts), Layers(parts.joint.program)
    for storage in timeline.storages:
        last = storage.last
        if storage.size_bytes and storage.first <= top and (last is None or last >= top):
            end = timeline.moments[last] if last is not None else None
            node = storage.maker
            yield LiveValue(
                node=node.name,
                bytes=storage.size_bytes,
                span=node.origin.location.innermost,
                kind=storage.kind,
                name=storage.name or _variable(names, node),
                made_in=timeline.moments[storage.first].phase,
                last=end.name if end is not None else None,
                last_in=end.phase if end is not None else None,
                last_span=end.span if end is not None else None,
                layer=layers.layer_of(node),
            )
    peak = timeline.moments[top]
    if peak.node is not None and peak.working_bytes:
        yield LiveValue(
            node=peak.name,
            bytes=peak.working_bytes,
            span=peak.span,
            kind="working memory",
            made_in=peak.phase,
            last=peak.name,
            last_in=peak.phase,
            last_span=peak.span,
            layer=layers.layer_of(peak.node),
        )


def _variable_names(parts: Partitioned) -> dict[tuple[str, int], str]:
    """Return the user's variable that a line assigns, by file and line."""
    variables = parts.joint.captured.variables
    return {(variable.span.file, variable.span.line): variable.name for variable in variables}


def _variable(names: dict[tuple[str, int], str], node: Node) -> str | None:
    span = node.origin.location.innermost
    if span is None or node.origin.backward:
        return None
    return names.get((span.file, span.line))
