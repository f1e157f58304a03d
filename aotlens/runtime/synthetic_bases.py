"""Module text that finds the synthetic base of overlapping arguments, and checks their geometry on it.

Invariant: the graph's views of the base are the arguments; a call with another geometry raises.
"""

from typing import Any

from aotlens.capture.records import Captured, SyntheticBaseOf
from aotlens.ir.render import Names, literal
from aotlens.runtime.module_text import TextBuilder


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
