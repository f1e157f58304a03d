"""Copy tensors so that the copies relate to each other like the originals.

Preserved: shared storage, object identity, strides and offsets, views and their bases, leaf or non-leaf,
`requires_grad`, conjugate bits, inference tensors, subclasses, `nn.Parameter`, and version groups (`detach`,
but not `.data`).  Not preserved: `.grad`, hooks of tensors, and the autograd graph before a non-leaf tensor
(a hidden leaf replaces it).
"""

import copy

import torch
from torch import Tensor, nn

from aotlens.torch_api.autograd import shares_version_counter


class Cloner:
    """Copies tensors and modules of one call; copies made by the same cloner keep their relations."""

    def __init__(self) -> None:
        self._tensors: dict[int, Tensor] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._on_storages: dict[int, list[tuple[Tensor, Tensor]]] = {}
        """By storage: (original, copy) of the tensors on it that are not views."""
        self._originals: list[object] = []
        """Keeps the originals alive, so that no id is reused."""
        self.leaves: list[tuple[Tensor, Tensor]] = []
        """(copy, leaf that receives its gradient); for a leaf copy both are the same tensor."""

    def keep(self, tensor: Tensor) -> None:
        """Use this tensor itself as its copy."""
        self._remember(tensor, tensor)

    def tensor(self, original: Tensor) -> Tensor:
        """Return the copy of one tensor; the same copy for the same object."""
        known = self._tensors.get(id(original))
        if known is not None:
            return known
        with torch.inference_mode(original.is_inference()):
            copy = self._make(original)
        self._copy_attributes(original, copy)
        self._remember(original, copy)
        if copy.is_leaf and copy.requires_grad:
            self.leaves.append((copy, copy))
        return copy

    def module(self, original: nn.Module) -> nn.Module:
        """Return a deep copy whose tensors keep their relations to all other copies."""
        memo: dict[int, object] = {}
        for child in original.modules():
            for value in (*child._parameters.values(), *child._buffers.values(), *vars(child).values()):
                if isinstance(value, Tensor):
                    memo[id(value)] = self.tensor(value)
        return copy.deepcopy(original, memo)

    def _copy_attributes(self, original: Tensor, copy: Tensor) -> None:
        if vars(original):
            vars(copy).update({k: v for k, v in vars(original).items() if not isinstance(v, Tensor)})

    def _remember(self, original: Tensor, copy: Tensor) -> None:
        self._tensors[id(original)] = copy
        self._originals.append(original)

    def _make(self, original: Tensor) -> Tensor:
        if hasattr(original, "__tensor_flatten__"):
            return self._subclass(original)
        if original.layout != torch.strided or original.device.type == "meta":
            return original.detach().clone().requires_grad_(original.requires_grad)
        if not original.is_inference() and original._base is not None:
            return self._view(original, original._base)
        plain = self._on_own_storage(original)
        if isinstance(original, nn.Parameter):
            return nn.Parameter(plain, requires_grad=original.requires_grad)
        if original.is_leaf:
            return plain.requires_grad_(original.requires_grad)
        return self._non_leaf(plain)

    def _on_own_storage(self, original: Tensor) -> Tensor:
        storage = original.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = storage.clone()
            self._originals.append(storage)
        geometry = (original.storage_offset(), original.size(), original.stride())
        on_storage = self._on_storages.setdefault(storage._cdata, [])
        counted = next((copy for other, copy in on_storage if shares_version_counter(original, other)), None)
        plain = torch.empty(0, dtype=original.dtype, device=original.device)
        if counted is not None and counted.numel():
            plain = _of_dtype(counted.detach(), original.dtype)
        on_storage.append((original, plain))
        with torch.no_grad():
            plain.set_(self._storages[storage._cdata], *geometry)
            if original.is_neg():
                plain = plain.neg()
            return plain.conj() if original.is_conj() else plain

    def _non_leaf(self, plain: Tensor) -> Tensor:
        leaf = plain.detach().clone().requires_grad_()
        overlaps = any(
            stride == 0 and size > 1 for size, stride in zip(plain.shape, plain.stride(), strict=True)
        )
        copy = leaf.clone() if overlaps else plain.copy_(leaf)
        self.leaves.append((copy, leaf))
        return copy

    def _view(self, original: Tensor, original_base: Tensor) -> Tensor:
        """Repeat the view on the copy of its base, in the grad mode in which it was made."""
        base = self.tensor(original_base)
        differentiable = original.grad_fn is not None or not base.requires_grad
        with torch.set_grad_enabled(differentiable):
            view: Tensor = original._view_func(base)  # type: ignore[attr-defined]
        if original.requires_grad and not view.requires_grad:
            view.requires_grad_()
        return view

    def _subclass(self, original: Tensor) -> Tensor:
        names, context = original.__tensor_flatten__()  # type: ignore[attr-defined]
        parts = {name: getattr(original, name) for name in names}
        inner = {k: self.tensor(part) if isinstance(part, Tensor) else part for k, part in parts.items()}
        with torch.no_grad():
            wrapper: Tensor = type(original).__tensor_unflatten__(  # type: ignore[attr-defined]
                inner, context, original.size(), original.stride()
            )
        if original.requires_grad and original.is_leaf:
            return wrapper.requires_grad_()
        if not original.requires_grad:
            return wrapper
        leaf = wrapper.requires_grad_()
        copied = leaf.clone()
        self.leaves.append((copied, leaf))
        return copied


def whole_storage(storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    """Return a storage as a flat tensor, with the dtype and device of `like`."""
    whole = torch.empty(0, dtype=like.dtype, device=like.device)
    with torch.no_grad():
        return whole.set_(storage, 0, (storage.nbytes() // like.element_size(),), (1,))


def _of_dtype(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the tensor with another dtype; such a view of the memory shares its version counter."""
    if tensor.dtype == dtype:
        return tensor
    elements = max(dtype.itemsize // tensor.dtype.itemsize, 1)
    return tensor.as_strided((elements,), (1,), 0).view(dtype)
