"""A CUDA device guard for builds of torch without a working one.

A few decompositions enter `torch.device` contexts of fake CUDA tensors, which crash the process where no
guard is registered; in a child of a process that uses the GPU the real guard fails. Torch has a no-op guard,
but installs it only over a guard without devices. So a dummy guard whose methods all return 0 is registered
first; it stays, and is harmless.
"""

import ctypes
import os
from typing import Any

from aotlens.torch_api.gpu import compiling_modules, forked_after_cuda

_CUDA = 1
"""`c10::DeviceType::CUDA`."""
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_REGISTER = "_ZN3c104impl19registerDeviceGuardENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE"
_METHODS = 64
"""More than the interface has."""

_references: list[Any] = []
"""Keeps alive what torch's registry points to."""


def ensure_cuda_guard() -> None:
    """Register the guard, except in a CUDA build of torch outside of a child of a process that uses the
    GPU."""
    modules = compiling_modules()
    library = ctypes.CDLL(os.path.join(modules.libraries, "libc10.so"))
    registry = (ctypes.c_void_p * (_CUDA + 1)).in_dll(library, _REGISTRY)
    if not registry[_CUDA] or forked_after_cuda():
        answer = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda _: 0)
        methods = (ctypes.c_void_p * _METHODS)(*[ctypes.cast(answer, ctypes.c_void_p).value] * _METHODS)
        guard = (ctypes.c_void_p * 8)(ctypes.addressof(methods))
        _references.extend((answer, methods, guard))
        register = getattr(library, _REGISTER)
        register.argtypes, register.restype = (ctypes.c_int8, ctypes.c_void_p), None
        register(_CUDA, ctypes.addressof(guard))
    modules.c._ensureCUDADeviceGuardSet()
