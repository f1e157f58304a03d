"""Whether a GPU is there, and torch's modules that compile or interpret code for one."""

import os
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from aotlens.torch_api.patches.scopes import Current

__all__ = [
    "compiling_modules",
    "forget_counted_devices",
    "forked_after_cuda",
    "hold_gpu",
    "interpreting_modules",
    "triton_target",
]

HELD_CYCLES, HELD_CYCLES_PER_CALL = 2_000_000, 100_000
"""About a millisecond, and 50 microseconds for each call: more than a process takes to launch and mark it."""


def hold_gpu(calls: int) -> None:
    """Keep the current stream busy, so that the next launches, this many, wait in its queue."""
    torch.cuda._sleep(HELD_CYCLES + calls * HELD_CYCLES_PER_CALL)


def forget_counted_devices() -> None:
    """Make torch count the devices again at the next query."""
    from torch._dynamo import device_interface

    device_interface.device_interfaces.clear()
    device_interface._device_initialized = False


def triton_target(original: Any, current: Current) -> Any:
    """Triton's driver: one for some GPU where Triton finds none.

    What a kernel writes to does not depend on the GPU.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    driver = triton.runtime.driver
    try:
        driver.active.get_current_target()
    except (RuntimeError, AssertionError):  # no driver of Triton finds a device, or its library
        return SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32))
    return driver._active


def forked_after_cuda() -> bool:
    """Return True if a parent of this process has started CUDA, which a forked child cannot use."""
    return bool(torch.cuda._is_in_bad_fork())


def compiling_modules() -> SimpleNamespace:
    """Return torch's modules that query the GPU while Inductor generates code for one.

    They are imported together, so that a module imported later never sees an emulated GPU.
    """
    import torch._inductor.compile_fx
    import torch._inductor.select_algorithm  # imports the templates, which look at the device once
    from torch._dynamo import device_interface
    from torch._inductor import async_compile, codecache, config, debug, graph, ir, scheduler
    from torch._inductor.codegen import cpp as cpp_codegen
    from torch._inductor.codegen import triton as triton_codegen
    from torch._inductor.runtime import triton_heuristics
    from torch._inductor.virtualized import V

    return SimpleNamespace(
        c=torch._C,
        carried_metadata=torch.fx.proxy._COPY_META_FIELDS,
        device_interface=device_interface,
        config=config,
        async_compile=async_compile,
        codecache=codecache,
        debug=debug,
        ir=ir,
        scheduler=scheduler,
        v=V,
        cpp_codegen=cpp_codegen,
        triton_codegen=triton_codegen,
        heuristics=triton_heuristics,
        libraries=os.path.join(os.path.dirname(torch.__file__), "lib"),
        graph_lowering=graph.GraphLowering,
        constant_that_stays=_device_constant_name,
    )


def _device_constant_name(self: Any, name: str, device: torch.device | None) -> str:
    """Replace `GraphLowering.constant_name`: names the constant on the device; its values stay here."""
    if device is None:
        return name
    suffix = f"_{device.type}{device.index or 0}"
    if name.endswith(suffix) or name + suffix in self.constants:
        return name.removesuffix(suffix) + suffix
    with _disable_current_modes():
        return str(self.allocate_non_dup_const_name(name + suffix, self.constants[name].clone()))


def interpreting_modules() -> SimpleNamespace:
    """Return torch's modules under which Inductor's wrapper runs with kernels in Triton's interpreter."""
    import torch._prims.rng_prims  # registers operators that wrappers call
    from torch._inductor import codecache
    from torch._inductor.runtime import hints, triton_helpers, triton_heuristics

    return SimpleNamespace(
        c=torch._C,
        guards=torch._C._dynamo.guards,
        helpers=triton_helpers,
        autotuner=triton_heuristics.CachingAutotuner,
        heuristics=triton_heuristics,
        largest_blocks=hints.TRITON_MAX_BLOCK,
        codecache=codecache,
    )
