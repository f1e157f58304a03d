"""Which kernel `scaled_dot_product_attention` takes on a GPU: flash, memory-efficient, or none.

The conditions are those of torch's own selector for dense tensors (`sdp_utils.cpp` of ATen's), in
its default order; cuDNN's kernel, which a build may prefer, is left out.
Invariant: a kernel is taken exactly where no condition of it is hurt, and each condition says why in a user's
words.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

HALF = (torch.float16, torch.bfloat16)
WIDEST_HEAD = 256
"""Flash attention takes heads up to this size."""
SMALL_SHARED_MEMORY = ((8, 6), (8, 9), (12, 0), (12, 1))
"""Architectures on which flash attention's backward has no room for some wide heads."""


class Kind(Enum):
    FLASH = "flash"
    EFFICIENT = "memory-efficient"
    STEPS = "steps"


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of `scaled_dot_product_attention`."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    is_causal: bool
    enable_gqa: bool

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.query, self.key, self.value

    @property
    def has_gradient(self) -> bool:
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)

    @property
    def heads(self) -> tuple[Any, ...]:
        """How many query, key and value have."""
        return tuple(tensor.shape[1] for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Chosen:
    kind: Kind
    why: str = ""
    """What stands against each kernel; empty where one is taken."""


def choose(asked: Asked, capability: tuple[int, int]) -> Chosen:
    """The kernel on a GPU of that compute capability."""
    flash = next(_against_flash(asked, capability), "")
    if not flash:
        return Chosen(Kind.FLASH)
    efficient = next(_against_efficient(asked, capability), "")
    if not efficient:
        return Chosen(Kind.EFFICIENT)
    if flash == efficient:
        return Chosen(Kind.STEPS, f"for flash and memory-efficient attention {flash}")
    return Chosen(Kind.STEPS, f"for flash attention {flash}; for memory-efficient attention {efficient}")


def _against_flash(asked: Asked, capability: tuple[int, int]) -> Iterator[str]:
    """Each condition of the flash kernel that is hurt."""
    head = asked.query.shape[-1]
    if not torch.backends.cuda.flash_sdp_enabled():
        yield "the script turns it off"
    yield from _against_rank(asked)
    if asked.mask is not None:
        yield "there is a mask, which it does not take"
    if head > WIDEST_HEAD or any(tensor.shape[-1] != head for tensor in asked.tensors):
        yield f"heads must have one size, at most {WIDEST_HEAD}"
    if capability < (8, 0):
        yield "the GPU is older than sm_80"
    lacks_room = 192 < head <= 224 or (head > 224 and asked.dropout > 0)
    if asked.has_gradient and capability in SMALL_SHARED_MEMORY and lacks_room:
        yield f"a gradient for heads of {head} numbers does not fit the GPU"
    if asked.is_causal and asked.query.shape[-2] != asked.key.shape[-2]:
        yield "`is_causal` wants as many queries as keys"
    if asked.query.dtype not in HALF:
        yield "the type is neither float16 nor bfloat16"
    yield from _against_layout(asked, shares_heads=asked.enable_gqa)
    if head != 1:
        yield from _against_strides(asked)


def _against_efficient(asked: Asked, capability: tuple[int, int]) -> Iterator[str]:
    """Each condition of the memory-efficient kernel that is hurt."""
    if not torch.backends.cuda.mem_efficient_sdp_enabled():
        yield "the script turns it off"
    yield from _against_rank(asked)
    head, of_value = asked.query.shape[-1], asked.value.shape[-1]
    unit = _unit(asked.query.dtype, capability)
    if head != asked.key.shape[-1] or not head or not of_value or head % unit or of_value % unit:
        yield f"heads must be multiples of {unit} numbers, the query's as wide as the key's"
    yield from _against_layout(asked, shares_heads=False)
    yield from _against_strides(asked)
    if asked.mask is not None and asked.mask.stride(-1) != 1:
        yield "the mask's last dimension is not contiguous"
    known = (torch.float16, torch.float32, *((torch.bfloat16,) if capability >= (8, 0) else ()))
    if asked.query.dtype not in known:
        yield "the type has no kernel"


def _against_rank(asked: Asked) -> Iterator[str]:
    if any(tensor.dim() != 4 for tensor in asked.tensors):
        yield "query, key and value must have 4 dimensions"


def _against_layout(asked: Asked, shares_heads: bool) -> Iterator[str]:
    """Of batches, heads and lengths."""
    queries, keys, values = asked.heads
    if len({tensor.shape[0] for tensor in asked.tensors}) > 1:
        yield "query, key and value must have one batch size"
    alike = queries == keys == values
    if not alike and not (shares_heads and keys == values and queries % keys == 0):
        yield "query, key and value must have as many heads" if not asked.enable_gqa else "`enable_gqa` is on"
    if any(tensor.shape[-2] == 0 for tensor in asked.tensors):
        yield "a sequence is empty"


def _against_strides(asked: Asked) -> Iterator[str]:
    names = ("query", "key", "value")
    apart = [name for name, one in zip(names, asked.tensors, strict=True) if one.stride(-1) != 1]
    if apart:
        yield f"the last dimension of {_listed(apart)} is not contiguous"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _unit(dtype: torch.dtype, capability: tuple[int, int]) -> int:
    """Numbers that the memory-efficient kernel loads at once."""
    at_once = 8 if dtype in HALF else 4
    if capability >= (8, 0):
        return at_once
    has_tensor_cores = capability >= (7, 0) and dtype in HALF
    return at_once if has_tensor_cores else 1
