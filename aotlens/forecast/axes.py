"""What may vary in a recorded call, and the values to try.

| axis | values |
|---|---|
| the same call again | twice: counters, lists that grow |
| a size | one more, one less, double, half, four times, 1 |
| the dtype of the floating, or the whole, arguments | float64, bfloat16; int32 |
| a number, bool | the next three; the other one |
| a tensor whose parameter may be None | None |
| a list | one entry more, one less |
| the number of dimensions | without the first one |
| requires_grad of the floating arguments | the other one |
| the modules' mode; grad mode | the other one |

An axis has one or more ways, because sizes of other arguments may have to follow.  Eager decides which way
works.
"""

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from aotlens.forecast.recorded_call import Edit, RecordedCall, Step, cast, resized, with_grad
from aotlens.forecast.vary import VariedName, VaryError
from aotlens.model.recompilations import AxisKind

__all__ = ["Axis", "Way", "automatic_axes", "requested_axis"]

Sizes = tuple[tuple[str, int], ...]
"""Arguments, each with one of its dimensions."""

MOST_CALLS = 64
"""The limit of combinations for `--vary`."""


@dataclass(frozen=True, slots=True)
class Way:
    """One set of values that vary together."""

    with_names: tuple[str, ...]
    steps: tuple[Step, ...]
    sizes: Sizes = ()
    """Which sizes change; empty for other kinds."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that varies; the first way that works in eager is used."""

    name: str
    kind: AxisKind
    recorded: str
    ways: tuple[Way, ...]


def automatic_axes(call: RecordedCall) -> Iterator[Axis]:
    """Yield everything that may vary, the most frequent first."""
    leaves = call.leaves
    repeats = tuple(Step(label, {}) for label in ("the second call", "the third call"))
    yield Axis("the same call again", "repeat", "the first call", (Way((), repeats),))
    yield from _sizes(leaves)
    yield from _numbers(leaves)
    yield from _modes(call)
    yield from _optional(call, leaves)
    yield from _lengths(call)
    yield from _dtypes(leaves)
    yield from _ranks(leaves)
    yield from _gradients(leaves)


def _tensors(leaves: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return plain tensors: sizes of a subclass may have to agree with those of its inner tensors."""
    return {
        name: value
        for name, value in leaves.items()
        if type(value) is Tensor and value.layout is torch.strided and not value.is_quantized
    }


def _sizes(leaves: Mapping[str, Any]) -> Iterator[Axis]:
    """Yield each size separately, and equal sizes together."""
    tensors = _tensors(leaves)
    groups: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name, tensor in tensors.items():
        for dim, size in enumerate(tensor.shape):
            groups.setdefault((dim, size), []).append((name, dim))
    for (_, size), members in sorted(groups.items(), key=lambda group: group[0][0]):
        anywhere = [entry for (_, other), group in groups.items() if other == size for entry in group]
        values = _other_sizes(size)
        together = [tuple(members)] if len(members) > 1 else []
        if len(anywhere) > len(members):
            together.append((members[0], *(entry for entry in anywhere if entry != members[0])))
        alone = [(member,) for member in members]
        for sizes in (together[:1] or alone[:1]) if len(members) > 1 else ():
            yield _size_axis(size, values, [sizes, *together[1:]])
        for sizes in alone:
            yield _size_axis(size, values, [sizes, *(together if len(members) == 1 else ())])


def _other_sizes(size: int) -> tuple[int, ...]:
    values = (size + 1, size - 1, 2 * size, size // 2, 4 * size, 1)
    return tuple(dict.fromkeys(value for value in values if value > 0 and value != size))


def _size_axis(size: int, values: Sequence[int], ways: Sequence[Sizes]) -> Axis:
    name, dim = ways[0][0]
    size_ways = tuple(_size_way(sizes, values) for sizes in ways)
    return Axis(f"{name}.shape[{dim}]", "size", str(size), size_ways)


def _size_way(sizes: Sizes, values: Sequence[int]) -> Way:
    steps = tuple(Step(str(value), _resizing(sizes, value)) for value in values)
    return Way(tuple(f"{name}.shape[{dim}]" for name, dim in sizes[1:]), steps, sizes)


def _resizing(sizes: Sizes, value: int) -> dict[str, Edit]:
    edits: dict[str, Edit] = {}
    for name, dim in sizes:
        edits[name] = _then(edits[name], resized(dim, value)) if name in edits else resized(dim, value)
    return edits


def _then(first: Edit, second: Edit) -> Edit:
    return lambda value: second(first(value))


def _constant(value: object) -> Edit:
    return lambda _: value


def _numbers(leaves: Mapping[str, Any]) -> Iterator[Axis]:
    for name, value in leaves.items():
        if isinstance(value, bool):
            others: tuple[object, ...] = (not value,)
        elif isinstance(value, int | float):
            others = (value + 1, value + 2, value + 3)
        else:
            continue
        kind: AxisKind = "value" if isinstance(value, bool) else "number"
        steps = tuple(Step(repr(other), {name: _constant(other)}) for other in others)
        yield Axis(name, kind, repr(value), (Way((), steps),))


def _modes(call: RecordedCall) -> Iterator[Axis]:
    modules = call.modules
    if modules:
        now, other = ("train", "eval") if modules[0].training else ("eval", "train")
        yield Axis("train or eval", "mode", now, (Way((), (Step(other, {}, (other,)),)),))
    now, other = ("grad", "no_grad") if torch.is_grad_enabled() else ("no_grad", "grad")
    yield Axis("grad mode", "mode", now, (Way((), (Step(other, {}, (other,)),)),))


def _optional(call: RecordedCall, leaves: Mapping[str, Any]) -> Iterator[Axis]:
    function = call.function if call.module is None else call.module.forward
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    for name, value in leaves.items():
        if value is not None and name in parameters and parameters[name].default is None:
            yield Axis(name, "None", "a value", (Way((), (Step("None", {name: _constant(None)}),)),))


def _lengths(call: RecordedCall) -> Iterator[Axis]:
    for name, items in call.lists.items():
        if items:
            longer = Step(str(len(items) + 1), {name: lambda value: [*value, value[-1]]})
            shorter = Step(str(len(items) - 1), {name: lambda value: value[:-1]})
            yield Axis(f"len({name})", "length", str(len(items)), (Way((), (longer, shorter)),))


def _ranks(leaves: Mapping[str, Any]) -> Iterator[Axis]:
    """Yield a single row in place of a batch, for one argument or all with as many rows."""
    tensors = {name: tensor for name, tensor in _tensors(leaves).items() if tensor.dim() > 1 and len(tensor)}
    for name, tensor in list(tensors.items())[:1]:
        equal = [other for other, candidate in tensors.items() if len(candidate) == len(tensor)]
        ways = [
            Way(
                tuple(f"{other}.ndim" for other in group[1:]),
                (Step(str(tensor.dim() - 1), dict.fromkeys(group, _first_row)),),
            )
            for group in dict.fromkeys(
                ((name,), (name, *(candidate for candidate in equal if candidate != name)))
            )
        ]
        yield Axis(f"{name}.ndim", "rank", str(tensor.dim()), tuple(ways))


def _first_row(tensor: Tensor) -> Tensor:
    row = tensor.detach()[0].clone()
    return row.requires_grad_() if tensor.requires_grad else row


def _dtypes(leaves: Mapping[str, Any]) -> Iterator[Axis]:
    for others, is_floating in (((torch.float64, torch.bfloat16), True), ((torch.int32,), False)):
        names = [
            name
            for name, tensor in _tensors(leaves).items()
            if tensor.is_floating_point() == is_floating and tensor.dtype is not torch.bool
        ]
        if names:
            now = leaves[names[0]].dtype
            ways = tuple(_cast_way(group, others) for group in dict.fromkeys((tuple(names), (names[0],))))
            yield Axis(f"{names[0]}.dtype", "dtype", str(now).removeprefix("torch."), ways)


def _cast_way(names: tuple[str, ...], dtypes: Sequence[torch.dtype]) -> Way:
    steps = tuple(
        Step(str(dtype).removeprefix("torch."), {name: cast(dtype) for name in names}) for dtype in dtypes
    )
    return Way(tuple(f"{name}.dtype" for name in names[1:]), steps)


def _gradients(leaves: Mapping[str, Any]) -> Iterator[Axis]:
    names = [name for name, tensor in _tensors(leaves).items() if tensor.is_floating_point()]
    if names:
        now = leaves[names[0]].requires_grad
        edits = {name: with_grad(not now) for name in names}
        way = Way(tuple(f"{name}.requires_grad" for name in names[1:]), (Step(str(not now), edits),))
        yield Axis(f"{names[0]}.requires_grad", "requires_grad", str(now), (way,))


# Requests of `--vary`.


def requested_axis(call: RecordedCall, variations: Sequence[VariedName]) -> Axis:
    """Return the combinations of all options as one axis; raises VaryError for an unknown argument."""
    options = [_requested_ways(call, name) for name in variations]
    count = math.prod(len(ways[0].steps) for ways in options)
    if count > MOST_CALLS:
        raise VaryError(f"{count} combinations of values are asked for; at most {MOST_CALLS} are tried")
    ways = tuple(map(_combined, product(*options)))
    names = ", ".join(name.text for name in variations if name.what != "mode") or "mode"
    return Axis(names, "asked", ", ".join(_recorded(call, name) for name in variations), ways)


def _combined(ways: tuple[Way, ...]) -> Way:
    steps = tuple(map(_merged, product(*(way.steps for way in ways))))
    with_names = tuple(name for way in ways for name in way.with_names)
    return Way(with_names, steps, tuple(size for way in ways for size in way.sizes))


def _merged(steps: tuple[Step, ...]) -> Step:
    edits: dict[str, Edit] = {}
    for step in steps:
        for name, edit in step.edits.items():
            edits[name] = _then(edits[name], edit) if name in edits else edit
    modes = tuple(mode for step in steps for mode in step.modes)
    return Step(", ".join(step.label for step in steps), edits, modes)


def _requested_ways(call: RecordedCall, variation: VariedName) -> tuple[Way, ...]:
    if variation.what == "mode":
        return (Way((), tuple(Step(mode, {}, (str(mode),)) for mode in map(str, variation.values))),)
    leaves = call.leaves
    if variation.what == "shared size":
        return tuple(_size_way(sizes, _sizes_of(variation)) for sizes in _shared(leaves, variation.dim))
    if variation.name not in leaves:
        raise VaryError(
            f"`{call.qualname}` is called without `{variation.name}`; it takes {', '.join(leaves)}"
        )
    value = leaves[variation.name]
    if variation.what == "value":
        steps = (Step(repr(other), {variation.name: _constant(other)}) for other in variation.values)
        return (Way((), tuple(steps)),)
    if not isinstance(value, Tensor):
        raise VaryError(
            f"`{variation.name}` is {type(value).__name__}, no tensor: write {variation.name}=VALUE,…"
        )
    if variation.what == "dtype":
        return (_cast_way((variation.name,), [_dtype(str(name)) for name in variation.values]),)
    if variation.what == "requires_grad":
        steps = (Step(str(other), {variation.name: with_grad(bool(other))}) for other in variation.values)
        return (Way((), tuple(steps)),)
    return tuple(_size_way(sizes, _sizes_of(variation)) for sizes in _following(leaves, variation))


def _sizes_of(variation: VariedName) -> tuple[int, ...]:
    return tuple(value for value in variation.values if isinstance(value, int))


def _following(leaves: Mapping[str, Any], variation: VariedName) -> Iterator[Sizes]:
    """Yield the size alone, those of other arguments at the same dimension, and every equal one."""
    tensor = leaves[variation.name]
    if not -tensor.dim() <= variation.dim < tensor.dim():
        raise VaryError(f"`{variation.name}` has {tensor.dim()} dimensions, so no size {variation.dim}")
    first, size = (variation.name, variation.dim % tensor.dim()), tensor.shape[variation.dim]
    everywhere = [
        (name, dim)
        for name, other in _tensors(leaves).items()
        for dim, n in enumerate(other.shape)
        if n == size
    ]
    yield (first,)
    for equal in ([entry for entry in everywhere if entry[1] == first[1]], everywhere):
        yield (first, *(entry for entry in equal if entry != first))


def _shared(leaves: Mapping[str, Any], dim: int) -> Iterator[Sizes]:
    tensors = {name: tensor for name, tensor in _tensors(leaves).items() if tensor.dim() > dim}
    if not tensors:
        raise VaryError(f"no argument is a tensor with a size {dim}")
    size = next(iter(tensors.values())).shape[dim]
    yield tuple((name, dim) for name, tensor in tensors.items() if tensor.shape[dim] == size)


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise VaryError(f"torch has no dtype `{name}`")
    return dtype


def _recorded(call: RecordedCall, variation: VariedName) -> str:
    leaves = call.leaves
    match variation.what:
        case "mode":
            grad = "grad" if torch.is_grad_enabled() else "no_grad"
            training = any(module.training for module in call.modules)
            return grad if variation.name in ("grad", "no_grad") else "train" if training else "eval"
        case "shared size":
            return str(leaves[next(_shared(leaves, variation.dim))[0][0]].shape[variation.dim])
        case "size":
            return str(leaves[variation.name].shape[variation.dim])
        case "dtype":
            return str(leaves[variation.name].dtype).removeprefix("torch.")
        case "requires_grad":
            return str(leaves[variation.name].requires_grad)
        case _:
            return repr(leaves[variation.name])
