"""View steps, and how a write through a view reaches its base.

Invariant: for every view operator the inverse writes new values of the view into its source and returns the
source's new value; an operator without a row falls back to strides, or is rejected by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.torch_api.fake.tensors import is_contiguous
from aotlens.unsupported import unsupported

aten = torch.ops.aten

CANNOT_VIEW = "Cannot view a tensor"
"""The error of fake tensors for sizes that no strides can express."""
Emit = Callable[..., Any]
"""Records one call of an operator on nodes and returns its node."""
Geometry = tuple[Any, Any, Any]
"""Sizes, strides and the first element, counted from another tensor's first one."""


@dataclass(frozen=True, slots=True, eq=False)
class ViewStep:
    """One view operator, applied to the previous tensor in the chain; equal only to itself."""

    op: Any
    args: tuple[Any, ...]
    """Without the viewed tensor, which comes first."""
    kwargs: tuple[tuple[str, Any], ...] = ()
    result: int | None = None
    """The index of the result, for an operator with several; otherwise None."""
    grad_enabled: bool = True
    """Whether grad mode was on when the user's code took the view."""
    inference: bool | None = None
    """Whether inference mode was on then; None for a view that no user code took."""
    offset: Any = None
    """For `as_strided`: the storage offset in elements; None for all others."""
    in_place: bool = False
    """Whether the viewed tensor itself became the view (`t_`)."""

    @classmethod
    def in_current_modes(
        cls, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **facts: Any
    ) -> "ViewStep":
        """Return a step that is taken in the current modes."""
        modes = {"grad_enabled": torch.is_grad_enabled(), "inference": torch.is_inference_mode_enabled()}
        return cls(op, args, tuple(kwargs.items()), **modes, **facts)

    def apply(self, emit: Emit, source: Any) -> Any:
        value = emit(self.op, source, *self.args, **dict(self.kwargs))
        return value if self.result is None else emit.item(value, self.result)  # type: ignore[attr-defined]


def views_after(prefix: tuple[ViewStep, ...], chain: tuple[ViewStep, ...]) -> tuple[ViewStep, ...] | None:
    """Return the views of a chain that follow those of another; None if it does not start with them."""
    return chain[len(prefix) :] if chain[: len(prefix)] == prefix else None


def apply_view(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the view of a fake tensor.

    Raises:
        RuntimeError: no strides can express it; eager's type of error, where fake tensors raise another.
    """
    try:
        return func(*args, **kwargs)
    except ValueError as error:
        if CANNOT_VIEW not in str(error):
            raise
        raise RuntimeError(
            f"view size is not compatible with input tensor's size and stride ({error}); use `.reshape(…)`"
        ) from error


def apply_chain(chain: tuple[ViewStep, ...], tensor: Any) -> Any:
    """Return the view of a tensor to which the steps lead."""
    for step in chain:
        views = step.op(tensor, *step.args, **dict(step.kwargs))
        tensor = views if step.result is None else views[step.result]
    return tensor


def _argument(step: ViewStep, position: int, default: Any) -> Any:
    """Return the step's argument at a position that counts the viewed tensor as 0."""
    return step.args[position - 1] if len(step.args) >= position else default


def _span(emit: Emit) -> Any:
    """Return the user's expression that writes, from the object that records the operators."""
    return getattr(emit, "span", None)


def _same_shape(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    return emit(aten.reshape.default, new, list(source.val.shape))


def _permute(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    dims = [dim % source.val.dim() for dim in step.args[0]]
    return emit(aten.permute.default, new, [dims.index(i) for i in range(len(dims))])


def _as_strided(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    size, stride, *offset = step.args
    start = offset[0] - source.val.storage_offset() if offset else 0
    return _write_by_strides(emit, source, new, (size, stride, start))


def _expand(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    """Write to an expanded view; valid only if no element is repeated."""
    if new.val.numel() != source.val.numel():
        raise unsupported("write-to-expanded", _span(emit))
    return emit(aten.reshape.default, new, list(source.val.shape))


def _unbind(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    return emit(aten.select_scatter.default, source, new, _argument(step, 1, 0), step.result)


def _split(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    sizes, dim = step.args[0], _argument(step, 2, 0)
    assert step.result is not None  # an operator with several results
    if isinstance(sizes, (list, tuple)):
        start = sum(sizes[: step.result])
        return emit(aten.slice_scatter.default, source, new, dim, start, start + sizes[step.result])
    start = sizes * step.result
    end = min(start + sizes, source.val.shape[dim])
    return emit(aten.slice_scatter.default, source, new, dim, start, end)


def _dtype(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    return emit(aten.view.dtype, new, source.val.dtype)


def _identity(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    return new


def _lazily(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    """Conjugate or negate lazily as the source does, so that its other views remain valid."""
    return with_lazy_bits_of(emit, source.val, emit(step.op, new))


def with_lazy_bits_of(emit: Emit, like: Any, node: Any) -> Any:
    """Return the value with the lazy conjugation and negation of `like`, materialised where it has none."""
    value = node.val
    if value.is_conj() != like.is_conj():
        node = _toggle_laziness(emit, node, value.is_conj(), aten._conj.default, aten.conj_physical.default)
    if value.is_neg() != like.is_neg():
        node = _toggle_laziness(emit, node, value.is_neg(), aten._neg_view.default, aten.neg.default)
    return node


def _toggle_laziness(emit: Emit, node: Any, is_lazy: bool, view: Any, compute: Any) -> Any:
    """Convert between `view(a)` and `compute(a)`, which have the same value."""
    if is_lazy:
        inside = node.args[0] if node.op is view else emit(view, node)
        return emit(compute, inside)
    return emit(view, emit(compute, node))


def _unfold(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    """Write to windows; valid only if they do not overlap, as in eager."""
    dim, size, distance = step.args
    if distance < size and new.val.shape[dim] > 1:
        raise unsupported("write-to-overlapping-windows", _span(emit))
    return _by_strides(emit, source, step, new)


def _by_strides(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    """Write through any view by its strides."""
    view = step.apply(emit, source).val
    start = view.storage_offset() - source.val.storage_offset()
    return _write_by_strides(emit, source, new, (view.shape, view.stride(), start))


def _write_by_strides(emit: Emit, source: Any, new: Any, geometry: Geometry) -> Any:
    """Write to elements that begin `geometry[2]` after the source's first one.

    A source with gaps, permuted dimensions or a storage offset is first laid out in new memory:
    `as_strided_scatter` counts in its strides and offset, which a backend's copy of it need not have.
    """
    val = source.val
    if 0 in val.shape:
        return source
    if is_contiguous(val) and type(val.storage_offset()) is int and val.storage_offset() == 0:
        return _scatter(emit, source, new, geometry)
    size, stride = list(val.shape), list(val.stride())
    extent = 1 + sum((length - 1) * distance for length, distance in zip(size, stride, strict=True))
    memory = emit(aten.new_empty.default, source, [extent])
    memory = _scatter(emit, memory, source, (size, stride, 0))
    memory = _scatter(emit, memory, new, geometry)
    return emit(aten.as_strided.default, memory, size, stride, 0)


def _scatter(emit: Emit, memory: Any, new: Any, geometry: Geometry) -> Any:
    """Write an element once if a dimension of stride 0 repeats it."""
    size, stride, start = list(geometry[0]), list(geometry[1]), geometry[2]
    for dim, distance in enumerate(stride):
        if type(distance) is int and distance == 0 and size[dim] not in (0, 1):
            new, size[dim] = emit(aten.slice.Tensor, new, dim, 0, 1), 1
    return emit(aten.as_strided_scatter.default, memory, new, size, stride, start)


SCATTERS: dict[Any, Any] = {
    aten.select.int: aten.select_scatter.default,
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
}
"""By view operator: the operator that writes the view into its source, with the same arguments."""
OPPOSITES: dict[Any, Any] = {
    aten.t.default: aten.t.default,
    aten.transpose.int: aten.transpose.int,
    aten.view_as_real.default: aten.view_as_complex.default,
    aten.view_as_complex.default: aten.view_as_real.default,
}
"""By view operator: the one that leads back to its source, with the same arguments."""
INVERSES: dict[Any, Callable[[Emit, Any, ViewStep, Any], Any]] = {
    aten.view.default: _same_shape,
    aten._reshape_alias.default: _same_shape,
    aten.unsqueeze.default: _same_shape,
    aten.squeeze.default: _same_shape,
    aten.squeeze.dim: _same_shape,
    aten.squeeze.dims: _same_shape,
    aten.view.dtype: _dtype,
    aten.permute.default: _permute,
    aten.as_strided.default: _as_strided,
    aten.expand.default: _expand,
    aten.unfold.default: _unfold,
    aten.unbind.int: _unbind,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.alias.default: _identity,
    aten._conj.default: _lazily,
    aten._neg_view.default: _lazily,
}
"""By any other view operator: the source's new value from its old one and the view's new one."""


def inverse_write(emit: Emit, source: Any, step: ViewStep, new: Any) -> Any:
    """Return the value of `source` after its view `step` received the value `new`."""
    if step.op in SCATTERS:
        return emit(SCATTERS[step.op], source, new, *step.args)
    if step.op in OPPOSITES:
        return emit(OPPOSITES[step.op], new, *step.args)
    return INVERSES.get(step.op, _by_strides)(emit, source, step, new)
