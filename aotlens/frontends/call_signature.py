"""The assumptions of a compilation about its input tensors, cheap enough to check at every call.

Invariant: two calls with the same signature, whose module tensors fit, can run the same code.
"""

from typing import Any

import torch
from torch.nn.parameter import is_lazy

from aotlens.capture.inputs.constant_arguments import as_hashable, plain_attributes
from aotlens.capture.inputs.fake_inputs import unsupported_kind
from aotlens.capture.inputs.module_tensors import module_tensors
from aotlens.capture.subclasses import inner_tensors, is_wrapper
from aotlens.runtime.module_call import tensor_slots
from aotlens.torch_api.autograd import has_version_counter
from aotlens.torch_api.fake.tensors import tensor_guard
from aotlens.torch_api.modes import default_device, user_function_mode_types
from aotlens.torch_api.operators import pytree
from aotlens.torch_api.saved_tensor_hooks import (
    graph_module_hooks,
    has_saved_tensor_hooks,
    saved_tensor_hooks_filter,
)
from aotlens.unsupported import unsupported

LEAVES = frozenset({torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None)})
"""Types that are leaves without asking pytree."""

PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
"""Tensor types between which compilations do not distinguish."""


def signature(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return everything that a compilation assumes as one dictionary key, including a module's tensors and
    flags.

    A tensor of an unsupported layout is its own kind: capture rejects it by name.
    """
    leaves, structure = _flatten(args, kwargs)
    described = _describe_or_unique([*module_tensors(fn).values(), *leaves])
    training = tuple(m.training for m in fn.modules()) if isinstance(fn, torch.nn.Module) else None
    return (structure, described, training, _modes())


def argument_signature(args: tuple[Any, ...], kwargs: dict[str, Any], sizes: bool) -> tuple[list[Any], Any]:
    """Return the leaves of a call, and the key of what is assumed about them and the modes.

    Without `sizes`, these are left to the guards of the module text.
    """
    leaves, structure = _flatten(args, kwargs)
    return leaves, (structure, _describe_or_unique(leaves, sizes), _modes())


def _flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
    if not kwargs and all(type(arg) in LEAVES for arg in args):
        return list(args), len(args)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    return leaves, str(spec)


def _describe_or_unique(leaves: list[Any], sizes: bool = True) -> Any:
    try:
        return _describe(leaves, sizes)
    except RuntimeError:
        if any(
            isinstance(leaf, torch.Tensor) and (is_lazy(leaf) or unsupported_kind(leaf)) for leaf in leaves
        ):
            return object()  # equal to no other call
        raise


def _describe(leaves: list[Any], sizes: bool = True) -> tuple[Any, ...]:
    objects: dict[int, int] = {}
    storages: dict[int, int] = {}
    described: list[tuple[Any, ...]] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Generator):
            described.append((torch.Generator, leaf.device))
            continue
        if not isinstance(leaf, torch.Tensor):
            held = ((name, type(value), as_hashable(value)) for name, value in plain_attributes(leaf).items())
            described.append((type(leaf), as_hashable(leaf), *held))
            continue
        described.append(
            (
                None if type(leaf) in PLAIN else type(leaf),
                leaf.dtype,
                leaf.device,
                (leaf.shape, leaf.stride(), leaf.storage_offset()) if sizes else _layout(leaf),
                leaf.requires_grad,
                leaf.is_leaf,
                leaf.is_inference() and (has_version_counter(leaf), True),
                leaf.is_neg() or (leaf.dtype.is_complex and leaf.is_conj()),
                objects.setdefault(id(leaf), len(objects)),
                storages.setdefault(_storage(leaf), len(storages)),
                None if type(leaf) in PLAIN else _inside(leaf, sizes),
            )
        )
    return tuple(described)


def _inside(tensor: Any, sizes: bool) -> Any:
    """Return a wrapper subclass's metadata, where it is hashable, and its inner tensors by name."""
    if not is_wrapper(tensor):
        return None
    _, metadata = tensor.__tensor_flatten__()
    inner = tuple(
        (path, inner_tensor.shape if sizes else None) for path, inner_tensor in inner_tensors(tensor)
    )
    return metadata if metadata.__hash__ is not None else None, inner


def _storage(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except NotImplementedError as error:
        if unsupported_kind(tensor):
            raise
        raise unsupported("functorch-transform") from error


def _layout(tensor: Any) -> tuple[Any, ...]:
    strides = tensor.stride()
    if tensor.layout is torch.jagged:  # its ragged size cannot be ordered, and its sizes are never symbolic
        return tensor.shape, strides
    order = tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))
    return len(strides), order, tensor.is_contiguous()


def autocast_dtypes() -> tuple[Any, ...]:
    """Return autocast's dtype by device; None where autocast is off."""
    return tuple(
        torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        for kind in ("cpu", "cuda")
    )


def _modes() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        autocast_dtypes(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        default_device(),
        user_function_mode_types(),
        _hooks(),
    )


def _hooks() -> Any:
    """Return the identities of saved-tensor hooks that are graph modules; otherwise whether there are
    hooks."""
    hooks = graph_module_hooks()
    return has_saved_tensor_hooks() if hooks is None else (*map(id, hooks), saved_tensor_hooks_filter())


class HeldTensors:
    """Tensors that a compilation uses beside the arguments: a module's parameters and buffers, and free
    variables.

    A module's tensors may be other objects of the same kind. Free variables are the same objects, which is
    checked elsewhere.  Either may have another storage, size or dtype, set in place (`.data`, `to`).
    """

    def __init__(self, fn: Any, leaves: list[Any], reached: list[Any]) -> None:
        self._slots: list[tuple[Any, Any]] = [*tensor_slots(fn)] if isinstance(fn, torch.nn.Module) else []
        self._free_tensors = reached
        self._described = _describe(self._tensors())
        self._remember()
        self._shared = self._sharing(leaves)

    def fit(self, leaves: list[Any]) -> bool:
        """Return True if they are unchanged, and share storages with the arguments as before."""
        if not self._known:
            return True
        if not self._unchanged():
            if _describe(self._tensors()) != self._described:
                return False
            self._remember()
        return self._sharing(leaves) == self._shared

    def _tensors(self) -> list[Any]:
        return [*(store.get(key) for store, key in self._slots), *self._free_tensors]

    def _unchanged(self) -> bool:
        for (store, key), tensor in zip(self._slots, self._known, strict=False):
            if store.get(key) is not tensor:
                return False
        has_moved = [tensor.data_ptr() for tensor in self._plain] != self._pointers
        return not has_moved and self._same_kind(*self._distinct)

    def _remember(self) -> None:
        self._known = self._tensors()
        self._distinct = list({id(tensor): tensor for tensor in self._known}.values())
        self._same_kind = tensor_guard(self._distinct)
        self._plain = [tensor for tensor in self._distinct if type(tensor) in PLAIN]
        self._pointers = [tensor.data_ptr() for tensor in self._plain]
        self._storages = {tensor.untyped_storage()._cdata: index for index, tensor in enumerate(self._known)}
        self._objects = {id(tensor): index for index, tensor in enumerate(self._known)}

    def _sharing(self, leaves: list[Any]) -> list[tuple[Any, Any]]:
        """Return for each argument which of the tensors it is, and with which it shares its storage."""
        return [
            (self._objects.get(id(leaf)), self._storages.get(leaf.untyped_storage()._cdata))
            for leaf in leaves
            if isinstance(leaf, torch.Tensor)
        ]
