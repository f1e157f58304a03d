"""The metadata of a compilation's input tensors, and the data of its constants, as text for cache keys."""

from collections.abc import Sequence
from typing import Any

import torch

from aotlens.capture.subclasses import is_wrapper
from aotlens.disk_cache import digest
from aotlens.ir.fingerprint import NoFingerprintError
from aotlens.torch_api.fake.tensors import FakeTensor

__all__ = ["bytes_text", "input_text", "sharing_lines"]

LARGEST_CONSTANT_BYTES = 1 << 26
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor})


def input_text(value: Any, fake: Any, name: str) -> str:
    """Return the text of one input: its fake tensor's sizes, with symbols by name, and its autograd state."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return f"{type(value).__name__} {value.node.expr}"
    if not isinstance(value, torch.Tensor):
        if type(value) in (int, float, bool, str, type(None), complex):
            return f"{type(value).__name__} {value!r}"
        raise NoFingerprintError(f"an input of type {type(value).__qualname__} (`{name}`)")
    if is_wrapper(value) or type(value) not in PLAIN:
        raise NoFingerprintError(f"a tensor subclass (`{name}`)")
    if value.layout is not torch.strided:
        raise NoFingerprintError(f"a {value.layout} tensor (`{name}`)")
    base = value._base if value._is_view() else None
    kinds = [kind.__name__ for kind in (torch.nn.Parameter, torch.nn.Buffer) if isinstance(value, kind)]
    base_text = "" if base is None else f" view of {_layout(fake._base)} {base.requires_grad} {base.is_leaf}"
    return f"{kinds} {_layout(fake)} {_flags(value)}{base_text}{_known_number(fake)}"


def _known_number(fake: Any) -> str:
    """Return the text of a 0-d tensor's value where Dynamo knows it: a constant or a symbol."""
    memo = getattr(fake, "item_memo", None) if not fake.dim() else None
    if memo is None:
        return ""
    return f" = {memo.node.expr if hasattr(memo, 'node') else repr(memo)}"


def _layout(fake: Any) -> str:
    if fake is None:
        raise NoFingerprintError("a view whose base is not known")
    geometry = f"{_sizes(fake.shape)} {_sizes(fake.stride())} {_size(fake.storage_offset())}"
    return f"{fake.dtype} {geometry} {_size(fake.untyped_storage().nbytes())} {fake.device}"


def _sizes(sizes: Any) -> str:
    return f"[{', '.join([_size(size) for size in sizes])}]"


def _size(size: Any) -> str:
    return str(size.node.expr) if isinstance(size, torch.SymInt) else str(size)


def _flags(value: Any) -> str:
    bits = f"{value.is_conj()} {value.is_neg()} {value.is_inference()}"
    return f"{value.requires_grad} {value.is_leaf} {bits}"


def sharing_lines(values: Sequence[Any]) -> list[str]:
    """Return lines on inputs that share a storage: which share it, of what each is a view, and its layout."""
    tensors = [(index, value) for index, value in enumerate(values) if _has_storage(value)]
    storages: dict[int, list[tuple[int, Any]]] = {}
    for index, value in tensors:
        storages.setdefault(value.untyped_storage()._cdata, []).append((index, value))
    roots: dict[int, int] = {}
    lines = []
    for members in storages.values():
        if len({id(value) for _, value in members}) > 1:
            lines += [_shared(index, value, roots, members) for index, value in members]
    return lines


def _has_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not is_wrapper(value)


def _shared(index: int, value: Any, roots: dict[int, int], members: list[tuple[int, Any]]) -> str:
    root = value if value._base is None else value._base
    number = roots.setdefault(id(root), len(roots))
    same = next(other for other, tensor in members if tensor is value)
    first = members[0][0]
    autograd_state = f"{root.requires_grad} {root.is_leaf}"
    return (
        f"{index} on {first}, is {same}: {_layout(value)}; view of {number}: {_layout(root)} {autograd_state}"
    )


def bytes_text(value: Any) -> str:
    """Return the text of a constant tensor, with its data as a digest."""
    if type(value) is not torch.Tensor or value.device.type != "cpu" or value.layout is not torch.strided:
        raise NoFingerprintError(f"a constant of type {type(value).__name__} on {value.device}")
    if value.nbytes > LARGEST_CONSTANT_BYTES:
        raise NoFingerprintError(f"a constant of {value.nbytes} bytes")
    flat = value.detach().resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)
    layout = f"{value.dtype} {list(value.shape)} {list(value.stride())} {value.requires_grad}"
    return f"{layout} {digest(flat.numpy().tobytes())}"
