"""The context in which torch and Triton generate code for an emulated GPU.

Invariant: nothing changes outside of the context. Replaced names are in one table, each with its reason, and
are restored when the context ends, however it ends; so are torch's memoised answers about devices.
"""

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from aotlens.codegen.gpu.offline.device_guard import ensure_cuda_guard
from aotlens.codegen.gpu.offline.emulated_devices import NullContext, driver_for, interface_for, properties_of
from aotlens.codegen.gpu.offline.requirements import require_triton
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.torch_api.fake.gpu import fake_cuda_without_driver
from aotlens.torch_api.gpu import compiling_modules, forked_after_cuda
from aotlens.torch_api.replacements import Replacement, replacing

__all__ = [
    "can_run_kernels",
    "cuda_queries",
    "ended_in_code_generation",
    "forget_devices",
    "gpu_in_use",
    "is_local_gpu",
    "offline_gpu",
    "replacements",
]

_LOCK = threading.RLock()
"""The replaced names belong to the whole process."""

_emulations: list[tuple[int, ExitStack]] = []
"""By process, the contexts in which a script sees an emulated GPU."""

_active_targets: list[GpuTarget] = []
"""The GPUs that code generation sees at the moment."""

_CACHES: dict[str, frozenset[str] | None] = {
    "torch.utils._triton": None,
    "torch._inductor.runtime.hints": frozenset({"DeviceProperties.create"}),
    "torch._inductor.codecache": frozenset({"CacheBase.get_system", "CacheBase.get_local_cache_path"}),
    "torch._inductor.utils": frozenset(
        {
            "get_gpu_type",
            "is_big_gpu",
            "get_max_num_sms",
            "using_b200",
            "get_device_tflops",
            "get_gpu_dram_gbps",
            "get_backend_num_stages",
            "_triton_supported_fp8_dtypes",
        }
    ),
}
"""By module, the functions whose memoised answers depend on the device; None means all functions of the
module.

Other memoised functions stay: Inductor registers its patterns in functions that must run only once.
"""

_CONFIG = {
    "compile_threads": 1,  # worker processes would not see the emulated GPU
    "fx_graph_cache": False,  # keyed by the real machine; a cache hit generates nothing to record
    "force_disable_caches": True,
    "triton.cudagraphs": False,  # would record on the device
    "use_static_triton_launcher": False,  # loads the binary itself, and drops the kernel's other texts
    "triton.autotune_at_compile_time": False,  # would run kernels
    "triton.unique_user_kernel_names": True,  # user kernels are identified by name
}


def is_local_gpu(target: GpuTarget) -> bool:
    """Return True if this process can use a GPU of the target's architecture, so that none is emulated.

    A child of a process that uses the GPU cannot use it.
    """
    if forked_after_cuda():
        return False
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == target.compute_capability


def gpu_in_use() -> str | None:
    """Return the architecture of the GPU that this process uses (`sm_90`); None where it uses none."""
    if not torch.cuda.is_initialized():
        return None
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


@contextmanager
def offline_gpu(target: GpuTarget) -> Iterator[None]:
    """Within the context, code is generated as on a machine with that GPU; the code cannot run.

    Raises:
        BackendError: Triton is not installed.
    """
    require_triton()
    _end_parent_emulation()
    modules = compiling_modules()
    if is_local_gpu(target):
        with modules.config.patch(_CONFIG):
            yield
        return
    ensure_cuda_guard()
    with _LOCK, ExitStack() as stack:
        modules.device_interface.get_interface_for_device("cpu")  # registers the real ones, once
        for replacement in replacements(target):
            stack.enter_context(replacing(replacement))
        stack.enter_context(modules.config.patch(_CONFIG))
        forget_devices()
        stack.callback(forget_devices)
        _active_targets.append(target)
        stack.callback(_active_targets.pop)
        yield


def can_run_kernels() -> bool:
    """Return True if generated code could run here: the GPU is this machine's own."""
    return not _active_targets and not forked_after_cuda() and torch.cuda.is_available()


@contextmanager
def ended_in_code_generation(emulation: ExitStack) -> Iterator[None]:
    """Within the context, a child process that generates code first ends this emulation.

    A fork inherits it from its parent, with the script's dispatch mode and its devices of tensors.
    """
    entry = os.getpid(), emulation
    _emulations.append(entry)
    try:
        yield
    finally:
        _emulations.remove(entry)


def _end_parent_emulation() -> None:
    while _emulations and _emulations[-1][0] != os.getpid():
        _emulations[-1][1].close()  # removes the entry


def replacements(target: GpuTarget) -> tuple[Replacement, ...]:
    """Return every name that is replaced for a target."""
    return (*cuda_queries(target), *_driver_replacements(target))


def cuda_queries(target: GpuTarget) -> Iterator[Replacement]:
    """Yield the replacements of `torch.cuda`'s queries."""
    properties = properties_of(target)
    major, _ = target.compute_capability
    why = "lowerings and templates choose by it"
    answers: dict[str, tuple[Callable[..., Any], str]] = {
        "is_available": (lambda: True, "templates and the device check of generated modules ask it"),
        "device_count": (lambda: 1, "belongs to is_available"),
        "current_device": (lambda: 0, "graphs are placed on device 0"),
        "get_device_capability": (lambda device=None: target.compute_capability, why),
        "get_device_properties": (lambda device=None: properties, "block sizes and warps follow from it"),
        "get_device_name": (lambda device=None: properties.name, "part of cache keys"),
        "is_bf16_supported": (lambda including_emulation=True: major >= 8, why),
        "is_tf32_supported": (lambda: major >= 8, why),
        "synchronize": (lambda device=None: None, "called around compilation"),
        "device": (NullContext, "entered around compilation when a GPU is available"),
        "_DeviceGuard": (NullContext, "the wrapper binds it"),
        "mem_get_info": (lambda device=None: (properties.total_memory,) * 2, "limits fusions"),
        "get_rng_state": (lambda device="cuda": torch.zeros(16, dtype=torch.uint8), "saved while compiling"),
        "set_rng_state": (lambda state, device="cuda": None, "restored after compiling"),
    }
    for name, (answer, reason) in answers.items():
        yield Replacement(torch.cuda, name, answer, reason)


def _driver_replacements(target: GpuTarget) -> Iterator[Replacement]:
    """Yield the replacements of torch's and Triton's device drivers."""
    import triton
    from triton.backends.nvidia.driver import CudaDriver

    modules = compiling_modules()
    interface = modules.device_interface
    emulated = interface_for(target, interface.CudaInterface)
    yield Replacement(
        interface,
        "device_interfaces",
        {**interface.device_interfaces, "cuda": emulated, "cuda:0": emulated},
        "the real interface bound torch.cuda's functions when it was imported",
    )
    yield Replacement(
        modules.c, "_cuda_getCurrentRawStream", lambda device: 0, "generated modules import it by name"
    )
    yield Replacement(
        modules.graph_lowering,
        "constant_name",
        modules.constant_that_stays,
        "the values of a constant would be copied to the device",
    )
    yield from fake_cuda_without_driver()
    yield Replacement(triton.runtime.driver, "_active", driver_for(target), "the real driver loads libcuda")
    yield Replacement(
        CudaDriver, "is_active", staticmethod(lambda: True), "every generated module looks for the driver"
    )


def forget_devices() -> None:
    """Clear torch's memoised answers about devices."""
    for module_name, chosen in _CACHES.items():
        module = sys.modules.get(module_name)
        for function in _cached_functions(module) if module is not None else ():
            if chosen is None or function.__qualname__ in chosen:
                function.cache_clear()


def _cached_functions(module: Any) -> Iterator[Any]:
    """Yield the memoised functions of a module and of its classes."""
    for value in list(vars(module).values()):
        owned = (
            vars(value).values() if isinstance(value, type) and value.__module__ == module.__name__ else ()
        )
        for candidate in (value, *owned):
            function = getattr(candidate, "__func__", candidate)
            if isinstance(function, functools._lru_cache_wrapper):
                yield function
