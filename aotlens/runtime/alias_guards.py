"""Module text that checks which arguments are one tensor, and which share a storage.

Invariant: a call that writes to an argument raises if the argument overlaps others in another way than at
compilation.
"""

from itertools import product
from typing import Any

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.records import Captured
from aotlens.capture.storage import has_symbols, storage_range_of
from aotlens.capture.subclasses import Path, inner_tensors
from aotlens.ir.slots import UserInput, inner_slot
from aotlens.runtime.tensor_guards import Checks
from aotlens.unsupported import unsupported

OVERLAP_HELPER = """
def reject_overlap(target, tensors, written):
    def ends(tensor):
        steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
        first = tensor.storage_offset() * tensor.element_size()
        return first, first + (steps + 1) * tensor.element_size()

    for name in written:
        for other, tensor in tensors.items():
            if other == name or tensor.untyped_storage()._cdata != tensors[name].untyped_storage()._cdata:
                continue
            (first, last), (start, end) = ends(tensors[name]), ends(tensor)
            if first < end and start < last:
                raise AssertionError(
                    f"compiled `{target}` writes to `{name}`, which did not share memory with `{other}` when "
                    "it was compiled, and now does: clone one of them before the call"
                )
"""
"""Module text of the slow path of the check."""


class AliasGuards:
    """Writes the checks of duplicates and overlaps among the arguments of one target."""

    def __init__(
        self, checks: Checks, captured: Captured, meta: ViewAndMutationMeta, arguments: list[str]
    ) -> None:
        self._checks = checks
        self._captured = captured
        self._meta = meta
        self._names = arguments

    def write_duplicates(self) -> None:
        """Check that arguments which were one tensor at compilation are one tensor."""
        for index, captured_input in enumerate(self._captured.flat_inputs):
            first = captured_input.duplicate_of
            if first is None:
                continue
            first_name = self._captured.inputs[first].slot.name
            message = f"`{captured_input.slot.name}` was the same tensor as `{first_name}`"
            if self._meta.inputs[first].is_mutated:  # else torch accepts it
                message = assumption(f"{index} would be a duplicate of input {first}", message)
            condition = f"{self._names[index]} is not {self._names[first]}"
            self._checks.raise_if(condition, "AssertionError", message)

    def write_overlaps(self) -> None:
        """Check that a written argument overlaps no argument that it did not overlap at compilation."""
        arguments = [
            (name, inner_slot(captured_input.slot, path), tensor)
            for index, captured_input in enumerate(self._captured.flat_inputs)
            if isinstance(captured_input.slot, UserInput)
            and captured_input.is_tensor
            and captured_input.duplicate_of is None
            for name, path, tensor in self._inner_tensors(index)
        ]
        changed = {
            info.index
            for info in self._meta.inputs
            if (info.mutates_data or info.mutates_metadata)
            and not self._captured.inputs[info.index].shares_storage_with
        }
        self._shared_storages()
        written = [name for name, slot, _ in arguments if slot.index in changed]
        if not written or len(arguments) < 2:
            return
        storages = len({tensor.untyped_storage()._cdata for _, _, tensor in arguments})
        tensors = ", ".join(name for name, _, _ in arguments)
        several = f"len({{tensor.untyped_storage() for tensor in ({tensors})}}) != {storages}"
        if len(written) == 1 and len(arguments) == storages:  # without a set, in half the time
            self._checks.builder.add(f"storage = {written[0]}.untyped_storage()")
            others = [name for name, _, _ in arguments if name != written[0]]
            several = " or ".join(f"{name}.untyped_storage() is storage" for name in others)
        with self._checks.builder.block(f"if {several}:"):
            named = ", ".join(f"{slot.name!r}: {name}" for name, slot, _ in arguments)
            slots = [slot.name for name, slot, _ in arguments if name in written]
            self._checks.builder.add(
                f"reject_overlap({self._checks.target!r}, {{{named}}}, {tuple(slots)!r})"
            )

    def _shared_storages(self) -> None:
        """Check that inputs on one storage, of which one is written to, keep their distance."""
        inputs = self._captured.inputs
        written = {
            near
            for info in self._meta.inputs
            if info.mutates_data or info.mutates_metadata_or_storage
            for near in (info.index, *inputs[info.index].shares_storage_with)
        }
        for index in sorted(written):
            captured_input = inputs[index]
            for other in captured_input.shares_storage_with:
                near = inputs[other]
                if other < index or (captured_input.base is not None and captured_input.base == near.base):
                    continue
                message = (
                    f"`{captured_input.slot.name}` and `{near.slot.name}` have other offsets on their storage"
                )
                pairs = product(self._inner_tensors(index), self._inner_tensors(other))
                for (left, _, before), (right, _, after) in pairs:
                    if before.untyped_storage()._cdata == after.untyped_storage()._cdata:
                        differs = _offset_differs(left, before, right, after)
                        same = f"{left}.untyped_storage() is {right}.untyped_storage()"
                        self._checks.raise_if(f"{differs} and {same}", "AssertionError", message)

    def _inner_tensors(self, index: int) -> list[tuple[str, Path, Any]]:
        """Return the text and tensor of a flat input; for a subclass, of each inner tensor, with its path."""
        name, fake = self._names[index], self._captured.inputs[index].fake
        return [(".".join((name, *path)), path, tensor) for path, tensor in inner_tensors(fake)]


def _offset_differs(left: str, before: Any, right: str, after: Any) -> str:
    """Return the condition that two tensors' distance differs; symbolic sizes are specialised."""
    ranges = storage_range_of(before), storage_range_of(after)
    if ranges[0] is None or ranges[1] is None:
        raise unsupported("write-on-data-dependent-storage", left=left, right=right)
    differs = f"{right}.storage_offset() - {left}.storage_offset() != {ranges[1].offset - ranges[0].offset}"
    if not has_symbols(before) and not has_symbols(after):
        return differs
    shapes = f"({left}.shape, {left}.stride(), {right}.shape, {right}.stride())"
    wanted = ", ".join(
        f"{storage_range.sizes}, {storage_range.strides}"
        for storage_range in ranges
        if storage_range is not None
    )
    return f"({differs} or {shapes} != ({wanted}))"


def assumption(assumed: str, actual: str) -> str:
    """Return the message that programs for `functorch.compile` look for, with the argument's name."""
    return (
        f"At compilation time, graph 0 was compiled under the assumption that input {assumed}, "
        f"but at runtime this was not the case: {actual}"
    )
