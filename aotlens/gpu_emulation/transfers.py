"""`to`, `cuda` and `cpu` between the CPU and an emulated GPU.

Invariant: a transfer copies to a new storage, and is recorded as the operator that torch records on a GPU;
its gradient is the reverse transfer. Calls that do not change the device use torch's own method.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.errors import UserError
from aotlens.gpu_emulation.tensor_devices import CPU, GPU, checked_device, is_on_gpu, mark_device
from aotlens.torch_api.fake.gpu import transfer_to_cpu
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.replacements import Replacement

_to: Any = torch.Tensor.to
_type: Any = torch.Tensor.type
_numpy: Any = torch.Tensor.numpy


def transfer_replacements() -> Iterator[Replacement]:
    """Yield the replacements of tensor methods that transfer between devices."""
    why = "copies between the devices as a GPU's owner sees it"
    yield Replacement(torch.Tensor, "to", to, why)
    yield Replacement(torch.Tensor, "cuda", cuda, why)
    yield Replacement(torch.Tensor, "cpu", cpu, why)
    yield Replacement(torch.Tensor, "type", convert_type, "names the device, or changes it")
    yield Replacement(torch.Tensor, "numpy", numpy, "an array is in the CPU's memory")
    pinned = "only a GPU's driver pins memory"
    yield Replacement(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor.clone(), pinned)
    yield Replacement(torch.Tensor, "is_pinned", lambda tensor, device=None: False, pinned)


def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """`Tensor.to` in all its forms."""
    device, args, kwargs = _named_device(args, kwargs)
    if device is None:
        return _to(tensor, *args, **kwargs)
    if device.type not in ("cpu", "cuda"):
        return _to(tensor, device, *args, **kwargs)
    return _on_device(tensor, device, args, kwargs)


def cuda(tensor: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
    """`Tensor.cuda`."""
    named = GPU if device is None else checked_device(device)
    return _on_device(tensor, named, (), {} if memory_format is None else {"memory_format": memory_format})


def cpu(tensor: Any, memory_format: Any = None) -> Any:
    """`Tensor.cpu`."""
    return _on_device(tensor, CPU, (), {} if memory_format is None else {"memory_format": memory_format})


def convert_type(tensor: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """`Tensor.type`: return the legacy type name, or convert to that type."""
    if dtype is None:
        name: str = _type(tensor)
        return name.replace("torch.", "torch.cuda.", 1) if tensor.is_cuda else name
    if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
        return _type(tensor, dtype.replace("torch.cuda.", "torch.", 1)).cuda()
    changed = _type(tensor, dtype, non_blocking, **kwargs)
    return changed.cpu() if isinstance(dtype, str) else changed


def numpy(tensor: Any, *, force: bool = False) -> Any:
    """`Tensor.numpy`, which does not copy from a GPU unless `force` is set."""
    if is_on_gpu(tensor) and not force and not isinstance(tensor, FakeTensor):
        raise UserError("`.numpy()` of a tensor on cuda:0: an array is on the CPU; write `.cpu().numpy()`")
    return _numpy(tensor, force=force)


def _named_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], Any]:
    """Return the device that a call of `to` names, and its other arguments."""
    other = kwargs.get("other", args[0] if args else None)
    if isinstance(other, torch.Tensor):
        rest = {name: value for name, value in kwargs.items() if name != "other"}
        return other.device, (other.dtype, *args[1:]), rest
    if kwargs.get("device") is not None:
        rest = {name: value for name, value in kwargs.items() if name != "device"}
        return checked_device(kwargs["device"]), args, rest
    if args and isinstance(args[0], (str, int, torch.device)):
        return checked_device(args[0]), args[1:], kwargs
    return None, args, {name: value for name, value in kwargs.items() if name != "device"}


def _on_device(tensor: Any, device: torch.device, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the tensor on a device; the tensor itself if nothing changes."""
    if is_on_gpu(tensor) == (device.type == "cuda"):
        names = ("dtype", "non_blocking", "copy")
        known = {**dict(zip(names, args, strict=False)), **kwargs}
        if known.get("dtype") is None:
            known["dtype"] = tensor.dtype  # `to` without a device needs a type
        return _to(tensor, **known)
    dtype = args[0] if args else kwargs.get("dtype")
    return transferred(tensor, device, dtype or tensor.dtype, kwargs.get("memory_format"))


def transferred(tensor: Any, device: torch.device, dtype: torch.dtype, memory_format: Any = None) -> Any:
    """Return a copy on another device."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return _Transfer.apply(tensor, device, dtype, memory_format)
    return _copy(tensor, device, dtype, memory_format)


class _Transfer(torch.autograd.Function):
    """A transfer with a gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, device: Any, dtype: Any, memory_format: Any) -> Any:
        ctx.source = (GPU if is_on_gpu(tensor) else CPU, tensor.dtype)
        return _copy(tensor, device, dtype, memory_format)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return transferred(gradient, *ctx.source), None, None, None


def _copy(tensor: Any, device: torch.device, dtype: torch.dtype, memory_format: Any) -> Any:
    target = GPU if device.type == "cuda" else device
    options: dict[str, Any] = {} if memory_format is None else {"memory_format": memory_format}
    if dtype is not tensor.dtype:
        options["dtype"] = dtype
    with nullcontext() if target is GPU else transfer_to_cpu():
        copied = aten._to_copy.default(tensor, device=target, **options)
    return copied if isinstance(copied, FakeTensor) else mark_device(copied, target is GPU)
