"""Fake tensors of a GPU that is not there."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from aotlens.torch_api.operators import tensor_leaves
from aotlens.torch_api.replacements import Replacement

__all__ = [
    "CPU",
    "device_for_autograd",
    "emulates_gpu",
    "fake_cuda_without_driver",
    "missing_gpu_patches",
    "optimizer_setup_patches",
    "reject_fake_cuda_patches",
    "transfer_to_cpu",
    "with_original_device",
]

CPU = torch.device("cpu")


@dataclass
class _EmulatedGpu:
    """Mutable: whether a GPU is emulated, and what the patches for it remember."""

    have_no_gpu: bool = False
    """Whether fake tensors may be on a GPU that is absent; `missing_gpu_patches` sets it."""
    to_cpu: bool = False
    """Whether `device="cpu"` is the user's, within `transfer_to_cpu`, and not C++'s answer to autograd."""
    asked_last: torch.device | None = None
    """The device of the tensor of which C++ asked it last: the options of a factory function are that
    tensor's."""


_EMULATED_GPU = _EmulatedGpu()


def emulates_gpu() -> bool:
    """Return True if fake tensors may be on a GPU that is absent (`missing_gpu_patches`)."""
    return _EMULATED_GPU.have_no_gpu


def optimizer_setup_patches(mode: TorchDispatchMode) -> Iterator[Replacement]:
    """Yield what makes Dynamo create the state of an optimizer in a mode."""
    from torch._dynamo import utils  # seconds to import
    from torch._dynamo.variables import optimizer

    call: Any = optimizer.OptimizerVariable.call_method

    def call_method(self: Any, tx: Any, name: str, *rest: Any) -> Any:
        with mode if name == "_init_group" else nullcontext():
            return call(self, tx, name, *rest)

    def is_static(tensor: Any) -> bool:
        return utils.get_static_address_type(tensor) is not None

    why = "Dynamo runs this part of the script itself, with all modes off"
    yield Replacement(optimizer.OptimizerVariable, "call_method", call_method, why)
    yield Replacement(
        optimizer, "_is_static_for_cudagraphs", is_static, "imports what a build without CUDA cannot import"
    )


def device_for_autograd(fake: Any) -> torch.device:
    """Return the device of a fake tensor as torch's C++ sees it: autograd cannot use a GPU that is absent.

    The recorder calls this too, since it receives the query before the fake tensor does.
    """
    device: torch.device = fake.fake_device
    _EMULATED_GPU.asked_last = device
    return CPU if _EMULATED_GPU.have_no_gpu and device.type == "cuda" else device


@contextmanager
def transfer_to_cpu() -> Iterator[None]:
    """Within the block, `device="cpu"` is taken literally for fake tensors of a GPU that is absent."""
    _EMULATED_GPU.to_cpu = True
    try:
        yield
    finally:
        _EMULATED_GPU.to_cpu = False


def with_original_device(args: Any, kwargs: Any) -> Any:
    """Return an operator's keyword arguments with the device of the tensor from which C++ took it.

    That tensor is an argument, or, for a factory function, the one whose options were read just before.
    """
    device = kwargs.get("device")
    if device is None or not _EMULATED_GPU.have_no_gpu or _EMULATED_GPU.to_cpu or device.type != "cpu":
        return kwargs
    devices = [leaf.fake_device for leaf in tensor_leaves(args) if isinstance(leaf, FakeTensor)]
    if not devices and kwargs.get("layout") is not None and _EMULATED_GPU.asked_last is not None:
        devices = [_EMULATED_GPU.asked_last]  # Python gives no layout
    return {
        **kwargs,
        "device": next((candidate for candidate in devices if candidate.type == "cuda"), device),
    }


def missing_gpu_patches() -> Iterator[Replacement]:
    """Yield what lets fake CUDA tensors run a backward without a GPU.

    To Python and to the dispatcher such a tensor is on the GPU.  Autograd's C++ sees `cpu`: its engine
    rejects a device that is absent, and ends the process in a build without CUDA.
    """
    module: Any = sys.modules[FakeTensorMode.__module__]
    query = torch.ops.prim.device.default
    dispatch: Any = vars(FakeTensor)["__torch_dispatch__"].__func__
    handlers = module._DISPATCH_META_HANDLERS
    in_kernel = handlers[query]

    def answer(args: Any) -> torch.device:
        return in_kernel(args) if args[0].fake_mode.in_kernel_invocation else device_for_autograd(args[0])

    def dispatched(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return answer(args) if func is query else dispatch(cls, func, types, args, kwargs or {})

    run = FakeTensorMode.dispatch

    def dispatched_in(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(self, func, types, args, with_original_device(args, kwargs or {}))

    why = "autograd's C++ gets the device `cpu`"
    yield Replacement(
        FakeTensorMode, "dispatch", dispatched_in, "and would make what it derives from that on the CPU"
    )
    yield Replacement(_EMULATED_GPU, "have_no_gpu", True, why)
    yield Replacement(FakeTensor, "__torch_dispatch__", classmethod(dispatched), why)
    yield Replacement(module, "_DISPATCH_META_HANDLERS", {**handlers, query: answer}, why)
    merge = FakeTensor._find_common_device

    def common_device(func: Any, flat_args: Any) -> tuple[torch.device, bool]:
        devices = [arg.device for arg in flat_args if isinstance(arg, FakeTensor)]
        gpu = next((device for device in devices if device.type == "cuda"), None)
        if gpu is None or all(device == gpu for device in devices):
            return merge(func, flat_args)
        has_only_numbers = False
        return gpu, has_only_numbers  # `capture/device_checks.py` rejects what a GPU would reject

    yield Replacement(
        FakeTensor,
        "_find_common_device",
        staticmethod(common_device),
        "C++ that asks for the device makes CPU tensors, which meet those on the GPU",
    )
    yield from fake_cuda_without_driver()


def fake_cuda_without_driver() -> Iterator[Replacement]:
    """Yield what keeps fake CUDA tensors from initialising a device."""
    module: Any = sys.modules[FakeTensorMode.__module__]
    why = "fake CUDA tensors would initialise the device that is said to be available"
    yield Replacement(FakeTensorMode, "avoid_device_init", property(lambda mode: True), why)
    yield Replacement(
        module, "init_gpu_context", lambda device: None, "before 2.12 a real tensor is made on it"
    )
    yield from _cudnn_convolution_patches()


def _cudnn_convolution_patches() -> Iterator[Replacement]:
    """Yield what gives fake convolutions on CUDA the memory format of cuDNN's outputs.

    With cuDNN, `channels_last` of the input or of the weight is the format of the output.
    """
    c: Any = torch._C
    select, determine = c._select_conv_backend, c._conv_determine_backend_memory_format
    backends = c._ConvBackend

    def selected(*args: Any, **kwargs: Any) -> Any:
        value = args[0] if args else kwargs["input"]  # by keyword in torch 2.11
        uses_cudnn = value.device.type == "cuda" and value.numel() > 0 and c._get_cudnn_enabled()
        return backends.Cudnn if uses_cudnn else select(*args, **kwargs)

    def determined(value: Any, weight: Any, backend: Any) -> Any:
        if value.device.type != "cuda" or backend != backends.Cudnn:
            return determine(value, weight, backend)
        return _cudnn_memory_format(value, weight)

    yield Replacement(c, "_select_conv_backend", selected, "a build without cuDNN selects kernels of its own")
    yield Replacement(c, "_conv_determine_backend_memory_format", determined, "their results are contiguous")


def _cudnn_memory_format(value: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    layouts = {suggest_memory_format(value), suggest_memory_format(weight)} - {torch.contiguous_format}
    if torch.float64 in (value.dtype, weight.dtype) or not layouts:
        return torch.contiguous_format
    return layouts.pop()


def reject_fake_cuda_patches() -> Iterator[Replacement]:
    """Yield what rejects fake CUDA tensors where no GPU is present or emulated, as torch rejects real
    ones."""
    module: Any = sys.modules[FakeTensorMode.__module__]
    initialise = module.init_gpu_context

    def no_context(device: torch.device) -> None:
        if device.type == "cuda":
            raise AssertionError("Torch not compiled with CUDA enabled")
        initialise(device)

    why = "one that requires grad ends the process where no GPU is"
    yield Replacement(module, "init_gpu_context", no_context, why)
