"""Which real tensors are on the emulated GPU.

Invariant: the mark is on the storage, so views, aliases and `.data` agree, and it is freed with the storage.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.replacements import Replacement
from aotlens.torch_api.transforms import unwrap_functorch
from aotlens.unsupported import unsupported

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
MARK = "aotlens_device"
"""The attribute with the mark; its values are text, since `torch.save` writes attributes of tensors."""
ON_GPU, ON_CPU, INTERNAL_COPY = "on the GPU", "on the CPU", "internal copy"

running_operators: list[Any] = []
"""Operators that the dispatch mode runs at the moment: torch's code within them sees the real device."""

_clone: Any = torch.UntypedStorage.clone
_plain_device: Any = vars(torch.Tensor.__base__)["device"].__get__


def mark_device(tensor: torch.Tensor, on_gpu: bool) -> torch.Tensor:
    """Mark the first tensor on a storage, and return it."""
    if not isinstance(tensor, FakeTensor):  # fake tensors store their device
        setattr(_holder(tensor), MARK, ON_GPU if on_gpu else ON_CPU)
    return tensor


def is_on_gpu(tensor: torch.Tensor) -> bool:
    """Return True if the tensor is on the emulated GPU."""
    if isinstance(tensor, FakeTensor):
        return bool(tensor.device.type == "cuda")
    try:
        return getattr(_holder(tensor), MARK, ON_CPU) == ON_GPU
    except NotImplementedError:  # a tensor of `torch.func`, which has no storage
        return is_on_gpu(unwrap_functorch(tensor))


def mark_internal_copy(tensor: torch.Tensor) -> None:
    """Mark a tensor that C++ created internally, because GPU tensors look like CPU tensors to it."""
    if not isinstance(tensor, FakeTensor) and not is_on_gpu(tensor):
        setattr(_holder(tensor), MARK, INTERNAL_COPY)


def is_internal_copy(tensor: torch.Tensor) -> bool:
    """Return True if C++ created the tensor internally, so that it may represent a GPU tensor."""
    return getattr(_holder(tensor), MARK, ON_CPU) == INTERNAL_COPY


def _holder(tensor: torch.Tensor) -> Any:
    """Return the object with the mark: the storage, or the tensor where it has none (sparse, a wrapper
    subclass)."""
    if tensor.layout is not torch.strided or hasattr(tensor, "__tensor_flatten__"):
        return tensor
    return tensor.untyped_storage()


@contextmanager
def running(operator: Any) -> Iterator[None]:
    """Within the context, the dispatch mode runs an operator, and torch's code sees the real device."""
    running_operators.append(operator)
    try:
        yield
    finally:
        running_operators.pop()


def ignoring_devices() -> AbstractContextManager[None]:
    """Within the context, tensors of both devices may be combined, for comparisons outside of the script."""
    return running(ignoring_devices)  # any entry of `running_operators` turns the checks off


def checked_device(device: Any) -> torch.device:
    """Return the device that a script names; raises for GPUs other than the emulated one."""
    named = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if named.type == "cuda" and named.index not in (None, 0):
        raise unsupported("device-index", device=named)
    return named


def device_replacements() -> Iterator[Replacement]:
    """Yield the replacements of a tensor's device queries."""
    why = "says where the script has put the tensor"
    for name, answer in {
        "device": _device,
        "is_cuda": lambda tensor: tensor.device.type == "cuda",
        "is_cpu": lambda tensor: tensor.device.type == "cpu",
    }.items():
        yield Replacement(torch.Tensor, name, property(answer), why)
    yield Replacement(torch.Tensor, "get_device", lambda tensor: 0 if tensor.is_cuda else -1, why)
    yield Replacement(
        torch.UntypedStorage, "clone", clone_storage, "a copy, as of a whole model, is where it was"
    )


def clone_storage(storage: Any) -> Any:
    """Replace `UntypedStorage.clone`, which `copy.deepcopy` of tensors uses."""
    made = _clone(storage)
    if hasattr(storage, MARK):
        setattr(made, MARK, getattr(storage, MARK))
    return made


def _device(tensor: torch.Tensor) -> torch.device:
    device: torch.device = _plain_device(tensor)
    return GPU if device.type == "cpu" and not running_operators and is_on_gpu(tensor) else device
