"""The user's saved-tensor hooks as parts of the graphs, where both are graph modules: `pack` runs at the end
of the forward, `unpack` at the start of the backward.

Invariant: every backward node that reads a packed value reads the unpacked one; the joint program and the
policy's decision do not change. If one of the hooks cannot be recorded, neither is part of the graphs.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.autograd.saved_tensor_hooks import HookRunner, SavedTensorHooks
from aotlens.ir.origin import Origin
from aotlens.ir.program import Node, Program, ancestors, map_nodes, with_replaced_values, writes_input
from aotlens.ir.slots import Buffer, Parameter
from aotlens.joint.data_dependent_sizes import missing_sizes, with_sizes
from aotlens.joint.differentiation import recording_autograd
from aotlens.joint.records import JointProgram
from aotlens.partition.records import Packed, Packing, Partitioned, Saved
from aotlens.partition.rules import Reason, is_number
from aotlens.partition.saved_values import describe_saved
from aotlens.partition.sides import backward_program, forward_program
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.operators import pytree

PACKING = "packed by the caller's saved-tensor hook"
UNPACKING = "unpacked by the caller's saved-tensor hook"


class HooksNotRecordedError(Exception):
    """The hooks cannot be part of the graphs: autograd runs them, as in eager."""


def with_hooks(parts: Partitioned, hooks: SavedTensorHooks) -> Partitioned:
    """Return the partition with the hooks in its graphs, or unchanged where they cannot be recorded."""
    if parts.backward is None or parts.joint.always_fails:
        return parts
    recorder = _Recording(parts.joint, hooks)
    try:
        values = tuple(recorder.run_hooks(value.node) for value in _hooked(parts, parts.backward, hooks))
    except Exception:  # noqa: BLE001 - whatever a hook raises, it raises in eager's place when it runs
        return parts
    return _with_packing(parts, Packing(hooks, values), recorder)


def _hooked(parts: Partitioned, backward: Program, hooks: SavedTensorHooks) -> Iterator[Saved]:
    """Yield the saved tensors on which the hooks run.

    Raises:
        HooksNotRecordedError: the backward mutates one; in eager that mutates the unpacked tensor.
    """
    written = {id(node.args[0]) for node in backward.nodes if writes_input(node)}
    for value in parts.saved:
        if is_number(value.node):
            continue
        if hooks.values == "donated" and not value.donated:
            continue
        if hooks.values == "no_static" and isinstance(value.owner, (Parameter, Buffer)):
            continue
        if id(value.node) in written:
            raise HooksNotRecordedError("the backward writes to a saved tensor")
        yield value


class _Recording:
    """Runs the hooks on fake aliases of saved values, and records them after the joint graph's nodes."""

    def __init__(self, joint: JointProgram, hooks: SavedTensorHooks) -> None:
        self._joint = joint
        self._recorder = joint.builder
        self._pack = HookRunner(hooks.pack, self._recorder)
        self._unpack = HookRunner(hooks.unpack, self._recorder)
        self.forward_numbers: dict[int, Node] = {}
        """Numbers of the forward that `unpack` reads, by identity; they are saved too."""

    def run_hooks(self, value: Node) -> Packed:
        """Record both hooks on one value.

        Raises:
            HooksNotRecordedError: a hook has side effects, or `unpack` returns another kind of tensor.
        """
        origin = Origin(value.origin.location, value.origin.op, False, "partition", PACKING)
        hook_input = self._fake_alias(value)
        pack_output, added = self._run(self._pack, hook_input, origin)
        self._reject_effects(added, [hook_input])
        leaves, spec = pytree.tree_flatten(pack_output)
        nodes = [self._node(leaf) for leaf in leaves]
        unpack_inputs = [
            leaf if node is None or is_number(node) else self._fake_alias(node)
            for leaf, node in zip(leaves, nodes, strict=True)
        ]
        packed = pytree.tree_unflatten(unpack_inputs, spec)
        origin = Origin(value.origin.location, value.origin.op, True, "partition", UNPACKING)
        unpacked, added = self._run(self._unpack, packed, origin, like=value.val)
        self._reject_effects(added, unpack_inputs)
        packed_nodes = tuple(dict.fromkeys(node for node in nodes if node is not None))
        result = self._node(unpacked)
        assert result is not None  # a tensor, since it passed _in_layout_of
        return Packed(value, packed_nodes, result, self._needed(result, packed_nodes, added))

    def _fake_alias(self, node: Node) -> Any:
        """Return a fake tensor with a tracked storage of its own, so that views and writes of a hook stay in
        it."""
        with self._recorder.fake_mode, torch.no_grad():
            return self._recorder.new_alias(node)

    def _run(
        self, hook: HookRunner, hook_input: Any, origin: Origin, like: Any = None
    ) -> tuple[Any, list[Node]]:
        """Return the hook's output, in the layout of `like`, and the nodes that it recorded."""
        recorder = self._recorder
        first, count = recorder.nodes[0], len(recorder.nodes)
        with recording_autograd(recorder, grad_enabled=False):
            output = hook.run_for(hook_input, origin)
            if like is not None:
                with recorder.inside_operator(origin):
                    output = _in_layout_of(output, like)
        constants = next(index for index, node in enumerate(recorder.nodes) if node is first)
        return output, [*recorder.nodes[:constants], *recorder.nodes[count + constants :]]

    def _node(self, leaf: Any) -> Node | None:
        """Return the node of a hook's output; None for a Python value, which is a constant of the graph."""
        with self._recorder.fake_mode, self._recorder.adding("partition", PACKING, forward=True):
            argument = self._recorder.argument(leaf)
        return argument if isinstance(argument, Node) else None

    def _needed(self, result: Node, packed_nodes: tuple[Node, ...], added: list[Node]) -> tuple[Node, ...]:
        """Return the nodes of `unpack` that its result needs, and note the forward's numbers that they
        read."""
        packed_ids, added_ids = {id(node) for node in packed_nodes}, {id(node) for node in added}
        at_hand = set(packed_ids)  # what the backward can compute from the packed values
        for node in added:
            if all(id(source) in at_hand or source.constant is not None for source in node.inputs()):
                at_hand.add(id(node))
        needed: dict[int, Node] = {}
        waiting = [result]
        while waiting:
            node = waiting.pop()
            if id(node) in packed_ids or id(node) in needed or id(node) in self.forward_numbers:
                continue
            outside = id(node) not in added_ids and node.constant is None
            if outside or (is_number(node) and id(node) not in at_hand):
                self.forward_numbers[id(node)] = node
                continue
            needed[id(node)] = node
            waiting.extend(node.inputs())
        constants = [node for node in needed.values() if id(node) not in added_ids]
        return (*constants, *(node for node in added if id(node) in needed))

    def _reject_effects(self, added: list[Node], hook_inputs: list[Any]) -> None:
        tensors = [self._recorder.tracked(leaf) for leaf in hook_inputs if isinstance(leaf, torch.Tensor)]
        counted = any(
            getattr(node.op, "namespace", "") == "rngprims" for node in added
        )  # the wrapper counts its random numbers
        written = any(known.storage.version for known in tensors)
        if counted or written or any(node.origin.effect for node in added):
            raise HooksNotRecordedError("a hook has side effects")


def _in_layout_of(unpacked: Any, like: Any) -> Any:
    """Return the unpacked tensor in the layout with which the backward was recorded.

    Raises:
        HooksNotRecordedError: it is another kind of tensor.
    """
    if (
        type(unpacked) is not FakeTensor
        or unpacked.dtype is not like.dtype
        or unpacked.device != like.device
        or unpacked.shape != like.shape
    ):
        raise HooksNotRecordedError("`unpack` returns another kind of tensor")
    if unpacked.stride() == like.stride():
        return unpacked
    if not torch.ops.aten.is_non_overlapping_and_dense.default(like):
        return unpacked
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).copy_(
        unpacked
    )


def _with_packing(parts: Partitioned, packing: Packing, recording: _Recording) -> Partitioned:
    backward, joint = parts.backward, parts.joint
    assert backward is not None  # checked by with_hooks
    known = {id(packed.value): packed for packed in packing.values}
    nodes, swaps = with_replaced_values(backward.nodes, unpacked_values(packing))
    nodes = tuple(dict.fromkeys((*unpacking_nodes(packing), *nodes)))
    before = tuple(value.node for value in parts.saved)
    after = dict.fromkeys(leaf for node in before for leaf in _leaves(node, known))
    after |= dict.fromkeys(recording.forward_numbers.values())
    symbolic = packing.values and joint.captured.is_symbolic
    sizes = missing_sizes(joint, tuple(after), nodes) if symbolic else ()
    saved = tuple(dict.fromkeys((*after, *sizes)))
    outputs = tuple(
        replace(out, value=map_nodes(out.value, lambda node: swaps.get(id(node), node)))
        for out in backward.outputs
    )
    return replace(
        parts,
        forward=forward_program(joint, saved, _forward_nodes(parts, saved)),
        backward=replace(backward_program(joint, saved, nodes), outputs=outputs),
        saved=_describe_packed(parts, saved, packing),
        packing=packing,
    )


def is_of_hook(node: Node) -> bool:
    """Return True if a hook recorded the node."""
    return node.origin.reason in (PACKING, UNPACKING)


def unpacked_values(packing: Packing | None) -> dict[int, Node]:
    """Map each packed value, by identity, to the value that the backward reads instead."""
    values = packing.values if packing is not None else ()
    return {id(packed.value): packed.unpacked for packed in values if packed.unpacked is not packed.value}


def unpacking_nodes(packing: Packing | None) -> tuple[Node, ...]:
    """Return the nodes that the backward runs first, each once."""
    values = packing.values if packing is not None else ()
    return tuple(dict.fromkeys(node for packed in values for node in packed.nodes))


def _leaves(node: Node, known: dict[int, Packed]) -> tuple[Node, ...]:
    packed = known.get(id(node))
    return (node,) if packed is None else packed.leaves


def _forward_nodes(parts: Partitioned, saved: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the forward's nodes, then those that the hooks have added for the values that are saved."""
    joint, recorded = parts.joint, tuple(parts.joint.builder.nodes)
    nodes = with_sizes(joint.program.nodes, [value.node for value in parts.saved])
    added = ancestors(saved, recorded) - {id(node) for node in nodes}
    return (*nodes, *(node for node in recorded if id(node) in added))


def _describe_packed(parts: Partitioned, saved: tuple[Node, ...], packing: Packing) -> tuple[Saved, ...]:
    """Describe the saved values after packing.

    A value that is not packed, or that `pack` returned unchanged, keeps its description.
    """
    before_packing = {id(value.node): value for value in parts.saved}
    value_of_leaf = {id(leaf): packed.value for packed in packing.values for leaf in packed.leaves}
    rows = describe_saved(
        parts.joint, saved, lambda node: Reason.PACKED if id(node) in value_of_leaf else Reason.SIZE
    )
    described = []
    for row in rows:
        packs, description = value_of_leaf.get(id(row.node)), before_packing.get(id(row.node))
        if description is not None and (packs is None or packs is row.node):
            described.append(description)
        else:
            described.append(replace(row, packs=packs))
    return tuple(described)
