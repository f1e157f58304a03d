"""Objects that the script saves on fake tensors, so that it can load them again without a file.

Invariant: what is stored keeps no tensor of a container alive: only modules are stored as they are.
"""

import copy
import os
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.torch_api.operators import pytree

__all__ = ["SavedFiles"]


@dataclass(frozen=True, slots=True)
class TensorForm:
    """A tensor without its values."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    is_parameter: bool

    def load(self, device: torch.device | None) -> torch.Tensor:
        tensor = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device or self.device)
        if self.is_parameter:
            return torch.nn.Parameter(tensor, self.requires_grad)
        return tensor.requires_grad_(self.requires_grad)


class SavedFiles:
    """What `torch.save` was called with, by file; mutable."""

    def __init__(self) -> None:
        self._objects: dict[str | int, tuple[list[Any], pytree.TreeSpec, Any]] = {}
        """Forms and structure by file, which is kept too: another cannot get its id."""

    def save(self, saved: Any, file: Any) -> None:
        leaves, structure = pytree.tree_flatten(saved)
        self._objects[_key(file)] = [_form(leaf) for leaf in leaves], structure, file

    def holds(self, file: Any) -> bool:
        return _key(file) in self._objects

    def load(self, file: Any, map_location: Any) -> Any:
        """Return new tensors of the same form, on `map_location` if that names a device."""
        device = torch.device(map_location) if isinstance(map_location, str | torch.device) else None
        forms, structure, _ = self._objects[_key(file)]
        return pytree.tree_unflatten([_loaded(form, device) for form in forms], structure)


def _key(file: Any) -> str | int:
    """Return the path of a file, or the id of a file object that has none."""
    path = file if isinstance(file, str | os.PathLike) else getattr(file, "name", None)
    return os.path.abspath(path) if isinstance(path, str | os.PathLike) else id(file)


def _form(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    is_parameter = isinstance(leaf, torch.nn.Parameter)
    return TensorForm(leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad, is_parameter)


def _loaded(form: Any, device: torch.device | None) -> Any:
    if isinstance(form, TensorForm):
        return form.load(device)
    return copy.deepcopy(form) if isinstance(form, torch.nn.Module) else form
