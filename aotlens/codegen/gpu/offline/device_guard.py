"""A CUDA device guard where torch has none that works.

A few decompositions enter `torch.device` contexts of fake CUDA tensors, which look the guard up and end the
process where it is missing; in a child of a process that uses the GPU the real one fails.  Torch has a guard
that does nothing, but puts it only in the place of another one without devices: so a stand-in is registered
first, whose every method answers 0.  It stays, and is harmless.
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
"""What torch's registry points to."""


def ensure_cuda_guard() -> None:
    """A build of torch with CUDA has one, which stays but in a child of a process that uses the GPU."""
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
