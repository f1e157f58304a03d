"""View steps, and how a write through a view reaches its base.

Invariant: for every view operator the inverse writes new values of the view into its source and returns the
source's new value; an operator without a row falls back to strides, or is rejected by name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.capture.builder import Builder
from aotlens.ir.program import Node
from aotlens.torch_api.fake.tensors import is_contiguous
from aotlens.unsupported import unsupported

aten = torch.ops.aten

CANNOT_VIEW = "Cannot view a tensor"
"""The error of fake tensors for sizes that no strides can express."""


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

    def apply(self, builder: Builder, source: Node) -> Node:
        """Add the view of a node's value."""
        node = builder.emit(self.op, source, *self.args, **dict(self.kwargs))
        return node if self.result is None else builder.item(node, self.result)


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


def extent(sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
    """Return the number of elements of memory from a strided tensor's first element to its last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def _argument(step: ViewStep, position: int, default: Any) -> Any:
    """Return the step's argument at a position that counts the viewed tensor as 0."""
    return step.args[position - 1] if len(step.args) >= position else default


def _same_shape(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    return builder.emit(aten.reshape.default, new, list(source.val.shape))


def _permute(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    dims = [dim % source.val.dim() for dim in step.args[0]]
    return builder.emit(aten.permute.default, new, [dims.index(i) for i in range(len(dims))])


def _as_strided(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    size, stride, *offset = step.args
    start = offset[0] - source.val.storage_offset() if offset else 0
    return _write_by_strides(builder, source, new, (size, stride, start))


def _expand(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    """Write to an expanded view; valid only if no element is repeated."""
    if new.val.numel() != source.val.numel():
        raise unsupported("write-to-expanded", builder.span)
    return builder.emit(aten.reshape.default, new, list(source.val.shape))


def _unbind(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    return builder.emit(aten.select_scatter.default, source, new, _argument(step, 1, 0), step.result)


def _split(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    sizes, dim = step.args[0], _argument(step, 2, 0)
    assert step.result is not None  # an operator with several results
    if isinstance(sizes, (list, tuple)):
        start = sum(sizes[: step.result])
        return builder.emit(aten.slice_scatter.default, source, new, dim, start, start + sizes[step.result])
    start = sizes * step.result
    end = min(start + sizes, source.val.shape[dim])
    return builder.emit(aten.slice_scatter.default, source, new, dim, start, end)


def _dtype(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    return builder.emit(aten.view.dtype, new, source.val.dtype)


def _identity(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    return new


def _lazily(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    """Conjugate or negate lazily as the source does, so that its other views remain valid."""
    return with_lazy_bits_of(builder, source.val, builder.emit(step.op, new))


def with_lazy_bits_of(builder: Builder, like: Any, node: Node) -> Node:
    """Return the value with the lazy conjugation and negation of `like`, materialised where it has none."""
    value = node.val
    if value.is_conj() != like.is_conj():
        node = _toggle_laziness(
            builder, node, value.is_conj(), aten._conj.default, aten.conj_physical.default
        )
    if value.is_neg() != like.is_neg():
        node = _toggle_laziness(builder, node, value.is_neg(), aten._neg_view.default, aten.neg.default)
    return node


def _toggle_laziness(builder: Builder, node: Node, is_lazy: bool, view: Any, compute: Any) -> Node:
    """Convert between `view(a)` and `compute(a)`, which have the same value."""
    if is_lazy:
        inside = node.args[0] if node.op is view else builder.emit(view, node)
        return builder.emit(compute, inside)
    return builder.emit(view, builder.emit(compute, node))


def _unfold(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    """Write to windows; valid only if they do not overlap, as in eager."""
    dim, size, distance = step.args
    if distance < size and new.val.shape[dim] > 1:
        raise unsupported("write-to-overlapping-windows", builder.span)
    return _by_strides(builder, source, step, new)


def _by_strides(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    """Write through any view by its strides."""
    view = step.apply(builder, source).val
    start = view.storage_offset() - source.val.storage_offset()
    return _write_by_strides(builder, source, new, (view.shape, view.stride(), start))


def _write_by_strides(builder: Builder, source: Node, new: Node, geometry: tuple[Any, Any, Any]) -> Node:
    """Write to elements of these sizes and strides, which begin `geometry[2]` after the source's first one.

    A source with gaps, permuted dimensions or a storage offset is first laid out in new memory:
    `as_strided_scatter` counts in its strides and offset, which a backend's copy of it need not have.
    """
    val = source.val
    if 0 in val.shape:
        return source
    if is_contiguous(val) and type(val.storage_offset()) is int and val.storage_offset() == 0:
        return _scatter(builder, source, new, geometry)
    size, stride = list(val.shape), list(val.stride())
    memory = builder.emit(aten.new_empty.default, source, [extent(size, stride)])
    memory = _scatter(builder, memory, source, (size, stride, 0))
    memory = _scatter(builder, memory, new, geometry)
    return builder.emit(aten.as_strided.default, memory, size, stride, 0)


def _scatter(builder: Builder, memory: Node, new: Node, geometry: tuple[Any, Any, Any]) -> Node:
    """Write an element once if a dimension of stride 0 repeats it."""
    size, stride, start = list(geometry[0]), list(geometry[1]), geometry[2]
    for dim, distance in enumerate(stride):
        if type(distance) is int and distance == 0 and size[dim] not in (0, 1):
            new, size[dim] = builder.emit(aten.slice.Tensor, new, dim, 0, 1), 1
    return builder.emit(aten.as_strided_scatter.default, memory, new, size, stride, start)


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
INVERSES: dict[Any, Callable[[Builder, Node, ViewStep, Node], Node]] = {
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


def inverse_write(builder: Builder, source: Node, step: ViewStep, new: Node) -> Node:
    """Return the value of `source` after its view `step` received the value `new`."""
    if step.op in SCATTERS:
        return builder.emit(SCATTERS[step.op], source, new, *step.args)
    if step.op in OPPOSITES:
        return builder.emit(OPPOSITES[step.op], new, *step.args)
    return INVERSES.get(step.op, _by_strides)(builder, source, step, new)
