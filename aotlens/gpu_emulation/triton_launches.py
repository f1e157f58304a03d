"""Launches of the user's Triton kernels on an emulated GPU run in Triton's interpreter.

Invariant: when a launch returns, its writes are in the script's tensors; otherwise the script ends with an
error.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch

from aotlens.codegen.gpu.interpreter.process import interpreter
from aotlens.codegen.gpu.interpreter.records import MESSAGES, Finding, UserLaunch
from aotlens.codegen.gpu.interpreter.transfer import write_bytes
from aotlens.errors import UserError
from aotlens.gpu_emulation.tensor_devices import is_on_gpu, running_operators
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.replacements import Replacement
from aotlens.torch_api.triton import triton_source
from aotlens.unsupported import unsupported

FAULTS = ("out of bounds", "failed assertion")
"""Findings that are errors of the kernel itself."""


def launch_replacements() -> Iterator[Replacement]:
    """Yield the replacements of what `kernel[grid](…)` calls, where Triton is installed."""
    if find_spec("triton") is None:
        return
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    yield Replacement(JITFunction, "run", run_interpreted, "there is no GPU to launch it on")
    yield Replacement(Autotuner, "run", run_first, "there is no GPU to time its configurations on")


def run_first(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """Launch a kernel with the first of its configurations."""
    config = tuner.configs[0]
    arguments = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs, **config.all_kwargs()}
    if config.pre_hook is not None:
        config.pre_hook(arguments)
    return tuner.fn.run(*args, **kwargs, **config.all_kwargs())


def run_interpreted(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
    """Run one launch in the interpreter.

    Raises:
        UserError: some tensors are on the CPU and others on the GPU, the kernel reaches outside of its
            arguments, or an assertion in it fails.
        UnsupportedError: the interpreter cannot run it.
    """
    arguments = {parameter.name: parameter.default for parameter in kernel.params if parameter.has_default}
    arguments |= dict(zip(kernel.arg_names, args, strict=False))
    arguments |= {name: value for name, value in kwargs.items() if name in kernel.arg_names}
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    if warmup or any(isinstance(value, FakeTensor) for value in tensors.values()):
        return  # fake tensors have no values
    name = kernel.__name__
    if not running_operators:  # within an operator that wraps the launch, tensors are copies
        _reject_mixed_devices(name, tensors)
    size = grid(arguments) if callable(grid) else grid
    detached = {key: value.detach() for key, value in tensors.items()}
    launch = UserLaunch(name, triton_source(kernel), tuple(map(int, size)), {**arguments, **detached})
    launched = interpreter().launch(launch)
    if launched.finding is not None:
        raise _error(name, launched.finding)
    for key, content in launched.written.items():
        write_bytes(tensors[key], content)


def _reject_mixed_devices(kernel: str, tensors: dict[str, torch.Tensor]) -> None:
    cpu = next((name for name, tensor in tensors.items() if not is_on_gpu(tensor)), None)
    if cpu is not None and any(map(is_on_gpu, tensors.values())):
        raise UserError(
            f"the Triton kernel `{kernel}` gets `{cpu}` on the CPU and other tensors on cuda:0; it can"
            " access only GPU memory: move it with .cuda()"
        )


def _error(kernel: str, finding: Finding) -> Exception:
    line = f", at `{finding.line}`" if finding.line else ""
    what = f"{MESSAGES[finding.kind]}{line}: {finding.message}"
    if finding.kind in FAULTS:
        return UserError(f"the Triton kernel `{kernel}` {what}")
    return unsupported("triton-interpreter", kernel=kernel, reason=what)
