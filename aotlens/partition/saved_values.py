"""The memory that each saved value adds, and notes on nodes."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from aotlens.ir.program import Node
from aotlens.ir.slots import BACKWARD_INPUTS, Buffer, FlatInput, Parameter
from aotlens.joint.records import JointProgram
from aotlens.model.units import human_bytes, human_flops
from aotlens.partition.problem import overruled_checkpoint
from aotlens.partition.records import Partitioned, Recomputed, Saved
from aotlens.partition.rules import Reason, is_number
from aotlens.partition.storages import node_bytes, returned_storages, storage_root


def describe_saved(
    joint: JointProgram, saved: tuple[Node, ...], why: Callable[[Node], Reason]
) -> tuple[Saved, ...]:
    """Describe saved values; memory is added only where no input, output or earlier value keeps the storage
    alive."""
    outputs = returned_storages(joint)
    owners: dict[int, Any] = {
        id(item.node): item.slot for item in joint.program.inputs_except(*BACKWARD_INPUTS)
    }
    counted: set[int] = set()
    roots = Counter(id(storage_root(node)) for node in saved)
    shared = {identity for identity, count in roots.items() if count > 1}
    rows = []
    for node in saved:
        root = storage_root(node)
        owner: FlatInput | None = owners.get(id(root))
        is_output = id(root) in outputs
        free = owner is not None or is_output or id(root) in counted
        counted.add(id(root))
        rows.append(
            Saved(
                node,
                _reason(node, owner, is_output, why),
                owner,
                is_output,
                0 if free else node_bytes(root),
                not free and not is_number(node) and root.constant is None and id(root) not in shared,
                overruled_checkpoint(node, saved=True),
            )
        )
    return tuple(rows)


def _reason(node: Node, owner: FlatInput | None, is_output: bool, why: Callable[[Node], Reason]) -> Reason:
    if owner is not None:
        return Reason.PARAMETER if isinstance(owner, (Parameter, Buffer)) else Reason.INPUT
    return Reason.OUTPUT if is_output else why(node)


def side_notes(parts: Partitioned, side: str) -> dict[str, str]:
    """Return notes by node name for the `forward` or `backward` program; other programs have none."""
    packed = parts.packing.values if parts.packing is not None else ()
    if side == "forward":
        return {
            leaf.name: f"{PACKED_NOTE} packs {item.value.name}" for item in packed for leaf in item.leaves
        }
    if side == "backward":
        unpacked = {item.unpacked.name: f"{PACKED_NOTE} unpacks {item.value.name}" for item in packed}
        return {value.node.name: _note(value) for value in parts.recomputed} | unpacked
    return {}


PACKED_NOTE = "the caller's hook"


def _note(value: Recomputed) -> str:
    costs = [human_flops(value.flops)] if value.flops else []
    costs += [f"frees {human_bytes(value.size_bytes)}"] if value.size_bytes else []
    return ", ".join([f"recomputed: counterpart of forward {value.node.name}", *costs])
