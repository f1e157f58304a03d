"""Groups of arguments that share memory: which of them needs a synthetic base."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from aotlens.capture.as_strided import overlaps_itself
from aotlens.capture.storage import contains_range, ranges_overlap, view_base
from aotlens.torch_api.fake.tensors import is_traceable_wrapper_subclass


@dataclass(frozen=True, slots=True)
class OverlappingGroup:
    """Distinct inputs on one storage of which two overlap, or one that contains elements several times."""

    members: tuple[int, ...]
    """Flat indices."""
    root: Any
    """The caller's tensor of which all members with a gradient are views; None for a flat base."""
    root_member: int | None
    """The member that is the root itself, if any."""

    @property
    def kind(self) -> Literal["input", "view_base", "flat"]:
        if self.root is None:
            return "flat"
        return "input" if self.root_member is not None else "view_base"


def overlapping_groups(values: list[Any], dynamic: bool) -> list[OverlappingGroup]:
    """Return the groups of inputs that need a base if a member is written; usually none.

    With symbolic sizes, an input that only overlaps itself gets no base, which would specialise its sizes.
    """
    storages: dict[int, list[int]] = {}
    seen: set[int] = set()
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor) and id(value) not in seen and _is_plain(value):
            seen.add(id(value))
            storages.setdefault(value.untyped_storage()._cdata, []).append(index)
    return [
        _group(values, tuple(members))
        for members in storages.values()
        if _any_overlap(values, members)
        or (not dynamic and any(overlaps_itself(values[member]) for member in members))
    ]


def _is_plain(value: Any) -> bool:
    return value.layout is torch.strided and not is_traceable_wrapper_subclass(value)


def _any_overlap(values: list[Any], members: list[int]) -> bool:
    """Return True if two members overlap, or one is a view of another although it is empty."""
    return any(
        ranges_overlap(values[left], values[right]) or _is_view_of_other(values[left], values[right])
        for end, left in enumerate(members)
        for right in members[:end]
    )


def _is_view_of_other(left: Any, right: Any) -> bool:
    return left._base is right or right._base is left


def _group(values: list[Any], members: tuple[int, ...]) -> OverlappingGroup:
    """Return the group; its base is flat if no single autograd root contains all members.

    Each member then retains its own gradient edge.  Members without gradient need a root only with grad mode
    on: a write may then give it, and all of them, a `grad_fn`.
    """
    roots = [view_base(values[index]) for index in members]
    differentiable_roots = {
        id(root): root for root, index in zip(roots, members, strict=True) if values[index].requires_grad
    }
    one_root = all(root is roots[0] for root in roots)
    root = next(iter(differentiable_roots.values()), None)
    if root is None and one_root and torch.is_grad_enabled():
        root = roots[0]
    has_leaves_in_plain_root = differentiable_roots and root is not None and not root.requires_grad
    if len(differentiable_roots) > 1 or root is None or has_leaves_in_plain_root:
        return OverlappingGroup(members, None, None)
    if not all(_contains(root, values[index]) for index in members):
        return OverlappingGroup(members, None, None)
    return OverlappingGroup(members, root, next((index for index in members if values[index] is root), None))


def _contains(root: Any, value: Any) -> bool:
    """Return True if a view of the root, from the storage's start, can contain the tensor."""
    if root.storage_offset() != 0:
        return False
    return value is root or value._base is root or contains_range(root, value)
