"""What torch and the engine do on a machine with a GPU, as far as it shows without one: one line of JSON.

The script of `test_emulated_driver.py`.  First the warm server is loaded, and what starts CUDA's driver is
listened to.  Then the engine compiles for a device of torch's own stand-in for accelerators: as with CUDA's,
its part of a backward is run by autograd's engine on a thread of its own.  It has no kernels, so tensors are
fake.
"""

import json
import os
import sys
import threading
from typing import Any

import torch
from torch._dynamo import device_interface
from torch._inductor import config as inductor_config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from aotlens.observe import observing
from aotlens.options import CompileOptions, SideEffects
from aotlens.pipeline import compile_direct
from aotlens.worker import warm_up as warm

STARTS_A_DRIVER = (
    (torch._C, "_cuda_getDeviceCount", 1),  # with which torch counts as built for CUDA
    (torch._C, "_ensureCUDADeviceGuardSet", None),
    (torch.cuda, "_lazy_init", None),
)
"""With what each answers where there is a GPU."""
MAIN = threading.get_ident()

threads: list[bool] = []
"""Whether each backward ran on this program's own thread."""
compiled_under: list[tuple[bool, int]] = []
"""For each graph: whether it was compiled on this program's own thread, and a setting there."""


def warmed_up() -> dict[str, Any]:
    """What a server asks while it warms up, whether torch holds what it found then for all there is, and what
    compiled code finds after."""
    asked: list[str] = []

    def answering(name: str, answer: Any) -> Any:
        def ask(*args: Any) -> Any:
            asked.append(name)
            return answer

        return ask

    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in STARTS_A_DRIVER]
    for owner, name, answer in STARTS_A_DRIVER:
        setattr(owner, name, answering(name, answer))
    setattr(warm, "may_have_gpu", lambda: True)  # noqa: B010 (mypy knows it as a function)
    warm.load()
    found = {"asked": list(asked), "registered": device_interface._device_initialized}
    for owner, name, real in before:
        if real is None:
            delattr(owner, name)
        else:
            setattr(owner, name, real)
    folded = torch.compile(
        lambda x: x if torch.cuda.is_available() else 2 * x, backend="eager", fullgraph=True
    )
    return {**found, "folded": folded(torch.ones(1)).item()}


class Noted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        threads.append(threading.get_ident() == MAIN)
        return gradients[0].cos()


def fn(x: torch.Tensor) -> torch.Tensor:
    return (Noted.apply(x) * 2).sum()


def backend(module: Any, inputs: list[Any]) -> Any:
    compiled_under.append((threading.get_ident() == MAIN, inductor_config.max_fusion_size))
    return module


def differentiated() -> dict[str, Any]:
    _setup_privateuseone_for_python_backend("standin")
    stages: list[str] = []
    with FakeTensorMode(), inductor_config.patch(max_fusion_size=17), observing(on_stage=stages.append):
        x = torch.empty(3, 3, device="standin", requires_grad=True)
        fn(x).backward()
        eager, threads[:] = list(threads), []
        traced = SideEffects.TRACED  # the backward notes its thread
        options = CompileOptions(backend=backend, side_effects=traced)
        compiled = compile_direct(fn, (x,), {}, options)
        compiled.call(x).backward()
    return {"eager": eager, "recorded": threads, "compiled": compiled_under, "last": stages[-1]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps({**warmed_up(), **differentiated()}) + "\n")
    sys.stdout.flush()
    os._exit(0)  # torch's thread for the stand-in's backward may outlive the interpreter, which aborts then
