"""The answers and effects of `torch.cuda` and related modules for a script on an emulated GPU.

The answers about the GPU itself are those of code generation
(`aotlens.codegen.gpu.offline.context.cuda_queries`).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from aotlens.codegen.gpu.offline.context import cuda_queries
from aotlens.codegen.gpu.offline.emulated_devices import NullContext, interface_for
from aotlens.gpu_emulation.streams import Event, Generator, Stream
from aotlens.gpu_emulation.tensor_devices import GPU, checked_device, mark_device
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.gpu import compiling_modules
from aotlens.torch_api.operators import pytree
from aotlens.torch_api.replacements import Replacement
from aotlens.unsupported import unsupported

_load: Callable[..., Any] = torch.load

NO_OPS: tuple[str, ...] = (
    "_lazy_init",
    "init",
    "set_stream",
    "set_per_process_memory_fraction",
    "empty_cache",
    "ipc_collect",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state_all",
)
"""Functions of `torch.cuda` that need a device and have no visible effect."""

NO_BYTES = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_cached",
    "max_memory_cached",
    "utilization",
    "temperature",
    "initial_seed",
)
"""Functions of `torch.cuda` that return 0 where nothing is allocated or runs."""

UNSUPPORTED_QUERIES = ("CUDAGraph", "graph", "graph_pool_handle", "make_graphed_callables")
"""Functions of `torch.cuda` that only work on a real device."""


def script_replacements(target: GpuTarget) -> Iterator[Replacement]:
    """Yield every name of torch that is replaced while a script runs."""
    yield from cuda_queries(target)
    yield from _of_cuda(target)
    yield from _of_accelerator()
    interface = compiling_modules().device_interface
    interface.get_interface_for_device("cpu")  # registers the real ones, once
    emulated = interface_for(target, interface.CudaInterface)
    yield Replacement(
        interface,
        "device_interfaces",
        {**interface.device_interfaces, "cuda": emulated, "cuda:0": emulated},
        "Dynamo asks it about streams and devices",
    )
    yield Replacement(torch, "Generator", Generator, "one for the GPU would look for its driver")
    yield Replacement(
        torch.nn.DataParallel,
        "forward",
        lambda model, *args, **kwargs: model.module(*args, **kwargs),
        "with one GPU it only calls the module, after copies that need one",
    )
    yield Replacement(torch, "load", load, "tensors that are loaded to the GPU are marked")
    yield Replacement(
        torch.backends.cuda, "is_built", lambda: True, "scripts ask it in place of is_available"
    )


def _of_cuda(target: GpuTarget) -> Iterator[Replacement]:
    for name in NO_OPS:
        yield Replacement(torch.cuda, name, lambda *args, **kwargs: None, "there is no device to change")
    for name in NO_BYTES:
        yield Replacement(torch.cuda, name, lambda device=None: 0, "nothing is allocated or runs there")
    for name in UNSUPPORTED_QUERIES:
        yield Replacement(
            torch.cuda, name, _unsupported_query(name), "a CUDA graph is captured by running on a GPU"
        )
    answers: dict[str, tuple[Any, str]] = {
        "set_device": (lambda device: checked_device(device) and None, "there is one"),
        "device_of": (NullContext, "entering a device does nothing"),
        "Stream": (Stream, "nothing runs on the device"),
        "ExternalStream": (Stream, "nothing runs on the device"),
        "Event": (Event, "nothing runs on the device"),
        "stream": (lambda stream=None: stream or NullContext(), "nothing runs on the device"),
        "current_stream": (lambda device=None: Stream(), "nothing runs on the device"),
        "default_stream": (lambda device=None: Stream(), "nothing runs on the device"),
        "is_current_stream_capturing": (lambda: False, "nothing runs on the device"),
        "get_rng_state_all": (lambda: [torch.zeros(16, dtype=torch.uint8)], "no generator is there"),
        "memory_stats": (lambda device=None: {}, "nothing is allocated"),
        "memory_summary": (lambda device=None, abbreviated=False: "", "nothing is allocated"),
        "can_device_access_peer": (lambda device, peer: False, "there is one"),
        "get_arch_list": (lambda: [target.sm], "the builds of torch for it have it"),
    }
    for name, (answer, reason) in answers.items():
        yield Replacement(torch.cuda, name, answer, reason)
    for name in ("range_push", "range_pop", "mark"):
        yield Replacement(torch.cuda.nvtx, name, lambda *args: 0, "there is no profiler of the device")


def _of_accelerator() -> Iterator[Replacement]:
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "set_device_index": lambda device: None,
        "current_stream": lambda device=None: Stream(),
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
    }
    for name, answer in answers.items():
        yield Replacement(torch.accelerator, name, answer, "the same as `torch.cuda`, by its newer name")


def _unsupported_query(name: str) -> Callable[..., Any]:
    def reject(*args: Any, **kwargs: Any) -> Any:
        raise unsupported("cuda-query", name=name)

    return reject


def load(file: Any, map_location: Any = None, **kwargs: Any) -> Any:
    """Replace `torch.load`: tensors for the GPU are loaded to the CPU and marked."""
    named = isinstance(map_location, (str, torch.device)) and checked_device(map_location).type == "cuda"
    if not named:
        return _load(file, map_location=map_location, **kwargs)
    loaded = _load(file, map_location="cpu", **kwargs)

    def on_gpu(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(GPU) if isinstance(tensor, FakeTensor) else mark_device(tensor, on_gpu=True)

    return pytree.tree_map_only(torch.Tensor, on_gpu, loaded)
