"""Find tensors that share memory, by their storages and by writing to them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from aotlens.verify.tensors.prepared_call import Named
from aotlens.verify.tensors.values import inner_tensors, same_values


@dataclass(frozen=True, slots=True)
class Write:
    """The effect of an in-place change of one output."""

    name: str
    error: type[BaseException] | None
    """The error that autograd or a subclass raised; None if the change was made."""
    changed_aliases: frozenset[str]
    """Names of the other inputs and outputs whose values changed."""


def storages(tensor: Tensor) -> Iterator[int]:
    """Yield the identities of the tensor's storages; several for a wrapper subclass."""
    if hasattr(tensor, "__tensor_flatten__"):
        for _, inner in inner_tensors(tensor):
            yield from storages(inner)
    elif tensor.layout == torch.strided:
        yield tensor.untyped_storage()._cdata


def storage_sharing(items: Sequence[Named]) -> dict[str, frozenset[str]]:
    """Return, by name, the names of the other tensors on the same storage."""
    groups: dict[int, list[str]] = defaultdict(list)
    for item in items:
        for storage in storages(item.tensor):
            groups[storage].append(item.name)
    shared: dict[str, frozenset[str]] = defaultdict(frozenset)
    for names in groups.values():
        for name in names:
            shared[name] |= frozenset(names) - {name}
    return shared


def try_writes(inputs: Sequence[Named], outputs: Sequence[Named]) -> tuple[Write, ...]:
    """Change each output in place, in order, and record which tensors on its storage change too."""
    everything = (*inputs, *outputs)
    groups = storage_sharing(everything)
    by_name = {item.name: item.tensor for item in everything}
    return tuple(_try_write(item, [(name, by_name[name]) for name in groups[item.name]]) for item in outputs)


def _try_write(item: Named, others: list[tuple[str, Tensor]]) -> Write:
    before = {name: other.detach().clone() for name, other in others}
    try:
        with torch.inference_mode(item.tensor.is_inference()):
            _change(item.tensor)
    except (RuntimeError, NotImplementedError) as error:
        return Write(item.name, type(error), frozenset())
    seen = frozenset(name for name, other in others if not same_values(before[name], other))
    return Write(item.name, None, seen)


def _change(tensor: Tensor) -> None:
    if tensor.dtype == torch.bool:
        tensor.logical_not_()
    else:
        tensor.add_(1)
