"""Tensors that the function reaches by itself, in a module that stands alone: made again as they were.

Invariant: tensors that lie in one memory lie in one there too, and a view is a view.
"""

from typing import Any

import torch

from aotlens.capture.records import CapturedInput
from aotlens.runtime.bindings import Bindings
from aotlens.runtime.builder import TextBuilder
from aotlens.torch_api.fake import FakeTensor

Outside = list[tuple[str, CapturedInput]]


def write_outside(builder: TextBuilder, bindings: Bindings, outside: Outside) -> None:
    """Each tensor as it was at export, under a comment with the user's name for it."""
    makes = _Outside(builder, bindings, outside)
    for name, given in outside:
        value: Any = given.outside
        note = f"# {name}: `{given.slot.name}` as it was at export; assign another tensor to it before a call"
        if value.grad_fn is not None and value._base is None:
            note = f"# {name}: `{given.slot.name}` as it was at export, without what it was computed from"
        builder.add(note)
        makes.write(name, value)


class _Outside:
    def __init__(self, builder: TextBuilder, bindings: Bindings, outside: Outside) -> None:
        self._builder = builder
        self._bindings = bindings
        self._made: dict[int, str] = {}
        """Names of tensors that are written already, by identity."""
        self._memory: dict[int, str] = {}
        """Names of memories that several tensors lie in, by storage."""
        storages = [
            given.outside.untyped_storage()._cdata for _, given in outside if _is_plain(given.outside)
        ]
        self._shared = {storage for storage in storages if storages.count(storage) > 1}

    def write(self, name: str, value: Any) -> None:
        self._made[id(value)] = name
        base = value._base if not value.is_inference() else None
        if base is not None and base.dtype == value.dtype and _is_plain(value):
            source = self._base(name, base)
            source += ".detach()" if base.requires_grad and not value.requires_grad else ""
            self._builder.add(f"{name} = {_with_signs(f'{source}.as_strided({_place(value)})', value, base)}")
        elif _is_plain(value) and value.untyped_storage()._cdata in self._shared:
            memory = self._whole(name, value)
            dtype = f"torch.empty(0, dtype={value.dtype})"
            text = f"{dtype}.set_({memory}.untyped_storage(), {_storage_place(value)})"
            text = _with_signs(text, value)
            if isinstance(value, torch.nn.Parameter):
                text = f"torch.nn.Parameter({text}, requires_grad={value.requires_grad})"
            elif value.requires_grad:
                text += ".requires_grad_()"
            self._builder.add(f"{name} = {text}")
        else:
            self._bindings.give(self._builder, name, value, "a tensor that the function reaches by itself")

    def _base(self, name: str, base: Any) -> str:
        known = self._made.get(id(base))
        if known is None:
            known = f"{name}_base"
            self.write(known, base)
        return known

    def _whole(self, name: str, value: torch.Tensor) -> str:
        """The name of the memory, written when first asked for."""
        storage = value.untyped_storage()
        known = self._memory.get(storage._cdata)
        if known is None:
            known = self._memory[storage._cdata] = f"{name}_memory"
            whole = torch.empty(0, dtype=torch.uint8, device=value.device).set_(storage)
            self._bindings.give(self._builder, known, whole, "memory of the user's tensors")
        return known


def _with_signs(text: str, value: torch.Tensor, base: torch.Tensor | None = None) -> str:
    """The text of a tensor with the signs that it has otherwise than what it is made of."""
    if value.is_conj() != (base is not None and base.is_conj()):
        text = f"{text}.conj()"
    if value.is_neg() != (base is not None and base.is_neg()):
        text = f"torch._neg_view({text})"
    return text


def _is_plain(value: Any) -> bool:
    kinds = (torch.Tensor, torch.nn.Parameter)
    return type(value) in kinds and type(value) is not FakeTensor and value.layout == torch.strided


def _place(value: torch.Tensor) -> str:
    return f"{tuple(value.shape)}, {tuple(value.stride())}, {value.storage_offset()}"


def _storage_place(value: torch.Tensor) -> str:
    return f"{value.storage_offset()}, {tuple(value.shape)}, {tuple(value.stride())}"
