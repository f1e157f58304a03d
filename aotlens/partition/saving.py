"""What each saved value adds to memory, and the order in which the runtime keeps saved values."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from aotlens.ir.program import Node
from aotlens.ir.slots import BACKWARD_INPUTS, Buffer, FlatInput, Parameter
from aotlens.joint.records import JointProgram
from aotlens.partition.problem import overruled_checkpoint
from aotlens.partition.reasons import Reason
from aotlens.partition.records import Saved
from aotlens.partition.rules import is_number
from aotlens.partition.storages import node_bytes, storage_root


def numbers_last(saved: Iterable[Node]) -> tuple[Node, ...]:
    """Tensors first, then sizes: the order in which the runtime keeps them."""
    return tuple(sorted(saved, key=is_number))


def describe_saved(
    joint: JointProgram, saved: tuple[Node, ...], why: Callable[[Node], Reason]
) -> tuple[Saved, ...]:
    """Nothing is added to memory where an input, a result or an earlier value keeps the storage."""
    outputs = {id(storage_root(out.value)) for out in joint.handed_out if isinstance(out.value, Node)}
    owners: dict[int, Any] = {
        id(given.node): given.slot
        for given in joint.program.inputs
        if not isinstance(given.slot, BACKWARD_INPUTS)
    }
    counted: set[int] = set()
    roots = Counter(id(storage_root(node)) for node in saved)
    shared = {identity for identity, count in roots.items() if count > 1}
    found = []
    for node in saved:
        root = storage_root(node)
        owner: FlatInput | None = owners.get(id(root))
        is_output = id(root) in outputs
        free = owner is not None or is_output or id(root) in counted
        counted.add(id(root))
        found.append(
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
    return tuple(found)


def _reason(node: Node, owner: FlatInput | None, is_output: bool, why: Callable[[Node], Reason]) -> Reason:
    if owner is not None:
        return Reason.PARAMETER if isinstance(owner, (Parameter, Buffer)) else Reason.INPUT
    return Reason.OUTPUT if is_output else why(node)
