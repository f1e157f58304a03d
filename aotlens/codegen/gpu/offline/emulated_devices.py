"""Triton's driver and torch's device interface for an emulated GPU.

Invariant: they answer queries and load nothing; anything that would run on the device raises.
"""

from types import SimpleNamespace
from typing import Any

import torch

from aotlens.codegen.gpu.machine_code.cubin import read_cubin
from aotlens.errors import InternalError
from aotlens.model.gpus.gpu_target import GpuTarget

THREADS_PER_BLOCK = 1024
"""The maximum of a block, on every NVIDIA GPU."""
STATIC_SHARED_BYTES = 49152
"""The default maximum of a block, on every NVIDIA GPU."""
WARP_SIZE = 32


def properties_of(target: GpuTarget) -> Any:
    """Return the answer of `torch.cuda.get_device_properties`."""
    return SimpleNamespace(
        name=target.full_name,
        major=target.compute_capability[0],
        minor=target.compute_capability[1],
        multi_processor_count=target.multiprocessors,
        total_memory=target.memory_bytes,
        warp_size=WARP_SIZE,
        regs_per_multiprocessor=target.registers_per_multiprocessor,
        max_threads_per_multi_processor=target.threads_per_multiprocessor,
        max_threads_per_block=THREADS_PER_BLOCK,
        shared_memory_per_block=STATIC_SHARED_BYTES,
        shared_memory_per_block_optin=target.shared_bytes_per_block,
        shared_memory_per_multiprocessor=target.shared_bytes_per_multiprocessor,
        L2_cache_size=target.l2_bytes,
        gcnArchName="",
        is_integrated=0,
        is_multi_gpu_board=0,
    )


class _Binaries:
    """Replaces the part of Triton's driver that loads compiled kernels: it reads their resources only."""

    def __init__(self, target: GpuTarget) -> None:
        self._target = target

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """Return module, function, registers, spilled words and threads, as the real driver does."""
        resources = read_cubin(binary)[name]
        return 1, 1, resources.registers, resources.frame_bytes // 4, THREADS_PER_BLOCK

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return what Triton compares a kernel's needs with when it loads the kernel."""
        target = self._target
        return {
            "max_shared_mem": target.shared_bytes_per_block,
            "max_num_regs": target.registers_per_multiprocessor,
            "multiprocessor_count": target.multiprocessors,
            "warpSize": WARP_SIZE,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }

    def set_printf_fifo_size(self, size: int) -> None:
        """No-op: nothing prints on an emulated device."""


class _Launcher:
    """Replaces Triton's launcher: a launch raises an error."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self._name = getattr(metadata, "name", "a kernel")

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        raise InternalError(f"`{self._name}` was generated for a GPU that is not there, and cannot run")


def driver_for(target: GpuTarget) -> Any:
    """Return a Triton driver; a subclass of the real one, which Inductor would install instead otherwise."""
    from triton.backends.compiler import GPUTarget  # optional dependency
    from triton.backends.nvidia.driver import CudaDriver

    major, minor = target.compute_capability

    class Driver(CudaDriver):
        def __init__(self) -> None:
            self.utils = _Binaries(target)
            self.launcher_cls = _Launcher

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", major * 10 + minor, WARP_SIZE)

        def get_current_device(self) -> int:
            return 0

        def set_current_device(self, device: int) -> None:
            """There is one."""

        def get_current_stream(self, device: int | None = None) -> int:
            return 0

        def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
            return major, minor

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cuda", 0)

    return Driver()


def interface_for(target: GpuTarget, real: type[Any]) -> type[Any]:
    """Return a subclass of torch's CUDA interface without the driver queries of `real`."""
    properties = properties_of(target)
    major, minor = target.compute_capability

    class Worker:
        set_device = staticmethod(lambda device: None)
        current_device = staticmethod(lambda: 0)
        get_device_properties = staticmethod(lambda device=None: properties)

    answers: dict[str, Any] = {
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device_count": lambda: 1,
        "get_device_properties": lambda device=None: properties,
        "get_raw_stream": lambda device: 0,
        "exchange_device": lambda device: 0,
        "maybe_exchange_device": lambda device: 0,
        "synchronize": lambda device=None: None,
        "memory_allocated": lambda device=None: 0,
        "is_available": lambda: True,
        "is_bf16_supported": lambda including_emulation=False: major >= 8,
        "get_compute_capability": lambda device=None: major * 10 + minor,
        "is_triton_capable": lambda device=None: major >= 7,
        "raise_if_triton_unavailable": lambda device=None: None,
    }
    methods = {name: staticmethod(answer) for name, answer in answers.items()}
    return type("EmulatedInterface", (real,), {"Worker": Worker, **methods})


class NullContext:
    """Replaces `torch.cuda.device`: entering an emulated device does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Which device does not matter."""

    def __enter__(self) -> "NullContext":
        return self

    def __exit__(self, *raised: object) -> None:
        """Nothing was entered."""
