"""Load torch and the engine into the server, and exercise them once.

Invariant: afterwards the process still has one thread of its own and no accelerator context, so that forked
children work; children get torch's own thread count back.

Importing is not enough: a first trace costs seconds of lazy imports and table building in every child; a
child of an exercised server needs milliseconds.
"""

import gc
import os
import platform
from contextlib import nullcontext

import torch

from aotlens.codegen.gpu.offline.context import forget_devices
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.process import may_have_gpu
from aotlens.session.trace import forget_loaded_modules, trace
from aotlens.torch_api.gpu import forget_counted_devices
from aotlens.torch_api.patches.compilers import NO_GPU
from aotlens.torch_api.patches.scopes import patched
from aotlens.worker.codec import Outcome
from aotlens.worker.protocol import Hello, TraceRequest
from aotlens.worker.requests import ProgressFunction, Trace

__all__ = ["load"]


def load() -> tuple[Trace, Hello]:
    """Return the trace function for the children, and the greeting for the client."""
    threads = torch.get_num_threads()
    torch.set_num_threads(
        1
    )  # a child forked after the thread pool has started hangs in its first parallel op
    with patched(NO_GPU) if may_have_gpu() else nullcontext():
        _exercise_direct()
        _exercise_dynamo()
    forget_counted_devices()
    forget_devices()
    forget_loaded_modules()
    gc.collect()
    gc.freeze()  # a collection in a child would otherwise touch, and so copy, the server's pages

    def trace_with_threads(request: TraceRequest, progress: ProgressFunction) -> Outcome:
        torch.set_num_threads(threads)
        return trace(request, progress)

    return trace_with_threads, Hello(os.getpid(), torch.__version__, platform.python_version())


def _exercise_direct() -> None:
    """Run one small compilation with the direct frontend: a product, a pointwise operator, a reduction."""

    def tiny(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ weight).sum()

    train = not may_have_gpu()
    if train:
        _start_autograd()
    arguments = torch.randn(2, 3), torch.randn(3, 2, requires_grad=train)
    compile_direct(tiny, arguments, {}, CompileOptions(backend="eager")).target()


def _start_autograd() -> None:
    """Let autograd count the accelerators while there are none.

    The first backward of a process starts one thread for each, and a child of such a process may not run any
    backward.  Under a fake mode, a torch built for CUDA counts GPUs that do not exist.
    """
    torch.zeros((), requires_grad=True).backward()


def _exercise_dynamo() -> None:
    """Run one small capture with Dynamo, whose import alone takes seconds."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(2))
    torch.compiler.reset()
