"""Compile the Triton kernels of a log for a GPU, for their registers, spills and occupancy.

Invariant: a kernel's text is rebuilt from the Triton subset first, and compiled in a child process that has
limits of time and memory.  No kernel runs, and no GPU is needed.

Only this module of `trace/gpu/` imports torch and Triton; it is loaded on demand.
"""

import resource
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from aotlens.codegen.gpu.cache import GpuCache
from aotlens.codegen.gpu.child_processes import ChildFailure, ChildJob, run_in_children
from aotlens.codegen.gpu.cost_model.roofline import Work, floor
from aotlens.codegen.gpu.kernel_rows import with_built_code
from aotlens.codegen.gpu.launches import Launch
from aotlens.codegen.gpu.machine_code.triton_build import build_kernel, prepare
from aotlens.codegen.gpu.offline.context import offline_gpu
from aotlens.codegen.gpu.records import BuiltKernel, GpuRequest, KernelSource
from aotlens.errors import UserError
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.model.kernels import Kernel, KernelShare
from aotlens.model.source import Phase
from aotlens.process import cores
from aotlens.trace.gpu.kernel_text import kernel_text
from aotlens.trace.output_code import OutputCode

__all__ = ["recompiled"]

GPU_CODE = ("cuda", "gpu")
"""The devices of rows that run on a GPU, as `kernels_of` names them."""
MEMORY_LIMIT = 16 << 30
"""Address space of a child that compiles a kernel of a log; torch and Triton reserve several GiB."""

_Key = tuple[Phase, str]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One kernel of a target, with the launches that it has in the generated code."""

    source: KernelSource
    launches: tuple[int, ...]
    """The numbers of its calls in their phase."""


def recompiled(
    rows: tuple[Kernel, ...], codes: Mapping[Phase, OutputCode], request: GpuRequest
) -> tuple[Kernel, ...]:
    """Return the rows with what compiling each generated kernel for the GPU tells, or why it could not be."""
    wanted: dict[_Key, _Wanted] = {}
    built: dict[_Key, BuiltKernel] = {}
    for row in rows:
        key = (row.phase, row.name)
        if key in wanted or key in built or row.kind != "generated" or row.target not in GPU_CODE:
            continue
        calls = [
            (number, call) for number, call in enumerate(codes[row.phase].calls) if call.name == row.name
        ]
        try:
            text = kernel_text(row.source)
        except UserError as error:
            built[key] = BuiltKernel(row.name, error=f"not compiled for {request.target.sm}: {error}")
            continue
        launches = tuple(Launch(text.name, call.arguments) for _, call in calls if text.has_grid)
        source = KernelSource(text.name, row.phase, text.source, launches)
        wanted[key] = _Wanted(source, tuple(number for number, _ in calls))
    built |= _built(wanted, request)
    return tuple(
        _row(row, built.get((row.phase, row.name)), wanted.get((row.phase, row.name)), request.target)
        for row in rows
    )


def _row(row: Kernel, built: BuiltKernel | None, wanted: _Wanted | None, target: GpuTarget) -> Kernel:
    row = with_floor(row, target)
    if built is None:
        return row
    launch = wanted.launches.index(row.call) if wanted is not None and row.call in wanted.launches else 0
    return with_built_code(row, built, launch, target)


def with_floor(row: Kernel, target: GpuTarget) -> Kernel:
    """Return the row for the target, with the least time of its traffic and work, divided among its lines."""
    if row.target not in GPU_CODE:
        return row
    row = replace(row, target=target.sm)
    if row.bytes_moved is None:
        return row
    work = (Work(row.flops, "f32", "matrix"),) if row.flops else ()
    least = floor(target, row.bytes_moved, work)
    count = max(len(row.spans), 1)
    read, written = (row.bytes_read or 0) // count, (row.bytes_written or 0) // count
    flops = (row.flops or 0) // count
    return replace(
        row,
        floor_us=least.time_us,
        bound=least.bound,
        intensity=least.intensity if row.flops else None,
        shares=tuple(KernelShare(span, read, written, flops, least.time_us / count) for span in row.spans),
    )


def _built(wanted: Mapping[_Key, _Wanted], request: GpuRequest) -> dict[_Key, BuiltKernel]:
    """Return each kernel, from the cache or compiled in a child process."""
    cache = GpuCache(request.target)
    built: dict[_Key, BuiltKernel] = {}
    keys: dict[ChildJob[BuiltKernel], _Key] = {}
    for key, each in wanted.items():
        cached = cache.kernel(each.source)
        if cached is not None:
            built[key] = cached
            continue
        job = ChildJob(f"Triton on `{key[1]}`", _work(each.source, request.target), request.kernel_limit_s)
        keys[job] = key
    if keys:
        prepare()
    for job, result in run_in_children(deque(keys), cores()):
        key = keys[job]
        if isinstance(result, ChildFailure):
            built[key] = BuiltKernel(key[1], error=f"not compiled for {request.target.sm}: {result.message}")
            continue
        built[key] = result
        cache.put_kernel(wanted[key].source, result)
    return {
        key: replace(kernel, texts=tuple(text for text in kernel.texts if text[0] in request.texts))
        for key, kernel in built.items()
    }


def _work(source: KernelSource, target: GpuTarget) -> Callable[[], Iterator[BuiltKernel]]:
    return partial(_compiled, source, target)


def _compiled(source: KernelSource, target: GpuTarget) -> Iterator[BuiltKernel]:
    """Compile one kernel; runs in a child process only."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_LIMIT if hard == resource.RLIM_INFINITY else min(MEMORY_LIMIT, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    with offline_gpu(target):
        yield build_kernel(source)
