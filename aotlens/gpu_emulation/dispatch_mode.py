"""The dispatch mode around a script on an emulated GPU, which decides the device of operator outputs.

Invariant: fake tensors pass through; the CPU's operator runs, and only new storages are marked.
"""

from collections.abc import Iterator
from typing import Any

import torch

from aotlens.capture.device_checks import accepts_mixed_devices, mixed_device_hint, mixed_device_message
from aotlens.capture.operators import aten
from aotlens.errors import UserError
from aotlens.gpu_emulation.tensor_devices import (
    CPU,
    checked_device,
    is_internal_copy,
    is_on_gpu,
    mark_device,
    mark_internal_copy,
    running,
    running_operators,
)
from aotlens.ir.program import is_higher_order
from aotlens.torch_api.fake.tensors import FakeTensor, current_fake_mode
from aotlens.torch_api.hop import dense_kernel
from aotlens.torch_api.modes import TorchDispatchMode
from aotlens.torch_api.operators import tensor_leaves

TO_COPY = aten._to_copy.default
DEVICE_PUT = torch.ops.prims.device_put.default


class DeviceMode(TorchDispatchMode):
    """Creates GPU tensors on the CPU, and marks them and what operators compute from them."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let Dynamo compile within the mode."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if current_fake_mode() is not None or any(issubclass(kind, FakeTensor) for kind in types):
            return func(*args, **kwargs)
        if is_higher_order(func):
            with running(func):
                result = _run_higher_order(func, args, kwargs)
            if any(map(is_on_gpu, tensor_leaves((args, kwargs)))):
                _mark_new(result)
            return result
        if func is DEVICE_PUT:
            func, args, kwargs = TO_COPY, args[:1], {"device": args[1]}
        on_gpu = _requests_gpu(func, kwargs)
        operands = list(_tensors(args, kwargs))
        if on_gpu is None:
            on_gpu = any(map(is_on_gpu, operands))
        if len(operands) > 1 and not running_operators:
            _reject_mixed_devices(func, operands)
        with running(func):
            result = func(*args, **_on_cpu(kwargs))
        if on_gpu and not func._schema.is_mutable:
            _mark_new(result)
        elif kwargs.get("layout") is not None or any(map(is_internal_copy, operands)):
            for tensor in tensor_leaves(result):
                mark_internal_copy(tensor)
        return result


class _SubgraphMode(TorchDispatchMode):
    """Active in subgraphs of a higher-order operator, which may create tensors with `device="cuda"`."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_higher_order(func):
            return _run_higher_order(func, args, kwargs or {})
        return func(*args, **_on_cpu(kwargs or {}))


def _run_higher_order(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a higher-order operator by its kernel, since calling the operator itself would bypass the mode."""
    kernel = dense_kernel(func)
    if kernel is None:
        return func(*args, **kwargs)
    with _SubgraphMode():
        return kernel(*args, **kwargs)


def _mark_new(result: Any) -> None:
    """Mark an operator's outputs as GPU tensors; those that are views of a GPU tensor are already."""
    for tensor in tensor_leaves(result):
        if not is_on_gpu(tensor):
            mark_device(tensor, on_gpu=True)


def _reject_mixed_devices(func: Any, tensors: list[Any]) -> None:
    """Raise UserError where a GPU would.

    Tensors without dimensions, which a kernel takes as numbers, and internal copies of C++ count for either
    device.
    """
    gpu = next(filter(is_on_gpu, tensors), None)
    if gpu is None or accepts_mixed_devices(func):
        return
    cpu = next(
        (
            tensor
            for tensor in tensors
            if tensor.dim() > 0 and not is_on_gpu(tensor) and not is_internal_copy(tensor)
        ),
        None,
    )
    if cpu is not None:
        what = mixed_device_hint(_description(cpu), _description(gpu))
        raise UserError(f"{mixed_device_message(str(func))}: {what}")


def _description(tensor: Any) -> str:
    return f"a tensor of size {tuple(tensor.shape)}"


def _requests_gpu(func: Any, kwargs: dict[str, Any]) -> bool | None:
    """Return True if the call names the GPU; None where the arguments decide.

    C++ passes the device and layout of a tensor's options, which it takes for the CPU's.
    """
    device = kwargs.get("device")
    if device is None:
        return None
    if checked_device(device).type == "cuda":
        return True
    return False if func is TO_COPY and kwargs.get("layout") is None else None


def _on_cpu(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments for the CPU's operator."""
    if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda":
        kwargs = {**kwargs, "device": CPU}
    return {**kwargs, "pin_memory": False} if kwargs.get("pin_memory") else kwargs


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    """Yield the tensor arguments of an operator, which are at most in a list: this runs at every call."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, torch.Tensor))
