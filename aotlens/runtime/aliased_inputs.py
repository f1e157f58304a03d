"""Module text about arguments that are one tensor or share a storage: synthetic bases, and checks.

Invariant: the graph's views of a base are the arguments; a call that writes to an argument raises if the
argument overlaps others in another way than at compilation.
"""

from itertools import product
from typing import Any

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.records import Captured, SyntheticBaseOf
from aotlens.capture.storage import has_symbols, storage_range_of
from aotlens.capture.subclasses import Path, inner_tensors
from aotlens.ir.render import Names, literal
from aotlens.ir.slots import UserInput, inner_slot
from aotlens.runtime.module_text import TextBuilder
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


def write_bases(builder: TextBuilder, captured: Captured, names: list[str]) -> None:
    """Write one line for each base that is no argument itself, and one check for each base."""
    reason = (
        "arguments overlap and one of them is mutated, so the graph takes their base"
        if captured.bases
        else "no mutated argument overlaps another one"
    )
    with builder.step("make synthetic bases", reason):
        for base in captured.bases:
            _write_base(builder, captured, base, names)
            _write_check(builder, captured, base, names)


def _write_base(builder: TextBuilder, captured: Captured, base: SyntheticBaseOf, names: list[str]) -> None:
    if base.kind == "view_base":
        # A member that was detached before the call has another base, or none.
        member = next(
            (index for index in base.members if captured.inputs[index].requires_grad), base.members[0]
        )
        builder.add(f"{names[base.index]} = {names[member]}._base")
    elif base.kind == "flat":
        count = literal(captured.inputs[base.index].fake.shape[0], Names())
        first = names[_reference_member(captured, base)]
        builder.add(f"{names[base.index]} = {first}.detach().as_strided(({count},), (1,), 0)")


def _reference_member(captured: Captured, base: SyntheticBaseOf) -> int:
    """Return the member whose dtype and sign bits a flat base has."""
    like, inputs = captured.inputs[base.index].fake, captured.inputs
    same = [index for index in base.members if inputs[index].fake.dtype is like.dtype]
    plain = (index for index in same if not inputs[index].fake.is_neg() and not inputs[index].fake.is_conj())
    return next(plain, same[0])


def _write_check(builder: TextBuilder, captured: Captured, base: SyntheticBaseOf, names: list[str]) -> None:
    name = names[base.index]
    conditions = []
    if base.kind == "view_base":
        conditions.append(f"{name} is None or {_layout_differs(name, captured.inputs[base.index].fake)}")
    for index in base.members:
        captured_input = captured.inputs[index]
        if index != base.index and captured_input.requires_grad and base.kind != "flat":
            conditions.append(f"{names[index]}._base is not {name}")
        elif index != base.index:
            conditions.append(f"{names[index]}.untyped_storage()._cdata != {name}.untyped_storage()._cdata")
        conditions.append(_layout_differs(names[index], captured_input.fake))
    listed = ", ".join(f"`{captured.inputs[index].slot.name}`" for index in base.members)
    message = (
        f"compiled `{captured.subject.name}`: {listed} overlap in memory and one of them is mutated; they"
        " do not overlap as they did when it was compiled: recompile it for these arguments"
    )
    builder.raise_if(" or ".join(conditions), "AssertionError", message)


def _layout_differs(name: str, fake: Any) -> str:
    """Return the condition that a tensor has another layout than at compilation."""
    names = Names()
    shape = f"torch.Size({literal(list(fake.shape), names)})"
    stride, offset = literal(tuple(fake.stride()), names), literal(fake.storage_offset(), names)
    layout = f"({name}.shape, {name}.stride(), {name}.storage_offset(), {name}.is_conj())"
    return f"{layout} != ({shape}, {stride}, {offset}, {fake.is_conj()})"


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
