"""Contexts around a script: one with an emulated GPU, one with fake tensors.

Invariant: both restore everything when the script ends, however it ends. One exception: torch's C++ notes
that CUDA has been initialised, which changes the text of its error for a missing device.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from aotlens.codegen.gpu.offline.context import ended_in_code_generation, forget_devices
from aotlens.codegen.gpu.offline.device_guard import ensure_cuda_guard
from aotlens.gpu_emulation.autocast import autocast_replacements, cuda_autocast
from aotlens.gpu_emulation.cuda_queries import script_replacements
from aotlens.gpu_emulation.dispatch_mode import DeviceMode
from aotlens.gpu_emulation.fake_script import fake_script_replacements
from aotlens.gpu_emulation.tensor_devices import device_replacements
from aotlens.gpu_emulation.transfers import transfer_replacements
from aotlens.gpu_emulation.triton_launches import launch_replacements
from aotlens.model.gpus.names import find_target
from aotlens.torch_api.fake.gpu import missing_gpu_patches, optimizer_setup_patches, reject_fake_cuda_patches
from aotlens.torch_api.fake.kernels import forget_results
from aotlens.torch_api.fake.tensors import FakeTensorMode
from aotlens.torch_api.modes import TorchDispatchMode, construct_on_cpu_first
from aotlens.torch_api.replacements import replacing

__all__ = ["emulating"]


@contextmanager
def emulating(gpu: str | None, fake: bool) -> Iterator[None]:
    """Run a script with that GPU, if one is named and none is present, and with fake tensors, if
    requested."""
    with ExitStack() as stack:
        if gpu is not None and not torch.cuda.is_available():
            stack.enter_context(_emulated_gpu(gpu, with_cpu=not fake))
            if not fake:
                stack.enter_context(_entered_mode(DeviceMode()))
        elif not torch.cuda.is_available():
            for patch in reject_fake_cuda_patches():
                stack.enter_context(replacing(patch))
        if fake:
            for replacement in fake_script_replacements():
                stack.enter_context(replacing(replacement))
            stack.enter_context(_entered_mode(FakeTensorMode(allow_non_fake_inputs=True)))
        yield


@contextmanager
def _entered_mode(mode: TorchDispatchMode) -> Iterator[None]:
    with ExitStack() as stack:
        for row in optimizer_setup_patches(mode):
            stack.enter_context(replacing(row))
        stack.enter_context(mode)
        yield


@contextmanager
def _emulated_gpu(gpu: str, with_cpu: bool) -> Iterator[None]:
    target = find_target(gpu)
    ensure_cuda_guard()
    tables: tuple[Any, ...] = (
        script_replacements(target),
        device_replacements(),
        transfer_replacements(),
        autocast_replacements(with_cpu),
        launch_replacements(),
        missing_gpu_patches(),
    )
    with ExitStack() as stack:
        for replacement in [replacement for table in tables for replacement in table]:
            stack.enter_context(replacing(replacement))
        stack.enter_context(construct_on_cpu_first())
        stack.enter_context(cuda_autocast())
        forget_devices()
        stack.callback(forget_devices)
        stack.callback(forget_results)
        stack.enter_context(ended_in_code_generation(stack))
        yield
