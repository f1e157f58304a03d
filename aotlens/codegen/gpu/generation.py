"""The graphs and kernels of one target: from the cache, or generated in child processes.

Invariant: only child processes emulate a GPU; a job that fails or takes too long does not affect the others.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from aotlens.codegen.gpu.cache import GpuCache
from aotlens.codegen.gpu.child_processes import ChildFailure, ChildJob, run_in_children
from aotlens.codegen.gpu.launches import Launch
from aotlens.codegen.gpu.lowering import lower
from aotlens.codegen.gpu.machine_code.cubin import read_cubin
from aotlens.codegen.gpu.machine_code.disassembly import disassembled
from aotlens.codegen.gpu.machine_code.triton_build import build_kernel, prepare
from aotlens.codegen.gpu.offline.context import offline_gpu
from aotlens.codegen.gpu.records import BuiltKernel, GpuRequest, KernelSource, LoweredGraph
from aotlens.model.report import Phase
from aotlens.observe import announce_stage
from aotlens.partition.records import Partitioned
from aotlens.process import cores

__all__ = ["GpuCode", "generate_for_gpu"]

LOWERING_LIMIT_S = 600.0
SASS = "sass"

KernelKey = tuple[Phase, str]
"""The phase and name of a kernel."""

OnResult = Callable[[Any], None]
"""Receives one result of a job, or its failure."""


@dataclass(slots=True)
class GpuCode:
    """The generated graphs and kernels; mutable while generation runs."""

    graphs: list[LoweredGraph] = field(default_factory=list)
    kernels: dict[KernelKey, BuiltKernel] = field(default_factory=dict)
    choices: dict[KernelKey, dict[int, BuiltKernel]] = field(default_factory=dict)
    """Compiled template choices that were not selected, by kernel and by index in the template's list."""
    error: str = ""
    """Why graphs are missing."""

    def with_choices(self) -> None:
        """Append the compiled choices to the configurations of their kernels."""
        for key, choices in self.choices.items():
            built = self.kernels.get(key)
            if built is not None and built.configs:
                times = len(built.configs[0].grids)
                others = (
                    config.launched(times) for index in sorted(choices) for config in choices[index].configs
                )
                self.kernels[key] = replace(built, configs=(*built.configs, *others))


def generate_for_gpu(parts: Partitioned, request: GpuRequest) -> GpuCode:
    """Generate everything for one target; kernels compile in parallel, and while the backward is lowered."""
    return _Generation(parts, request).run()


class _Generation:
    """One run of the generation for a target."""

    def __init__(self, parts: Partitioned, request: GpuRequest) -> None:
        self._parts = parts
        self._request = request
        self._cache = GpuCache(request.target)
        self._result = GpuCode()
        self._jobs: deque[ChildJob[Any]] = deque()
        self._on_result: dict[ChildJob[Any], OnResult] = {}
        self._wanted = 0
        """Number of kernels known so far."""

    def run(self) -> GpuCode:
        """Return the code of all graphs; graphs that the cache has are not lowered again."""
        announce_stage(f"code for {self._request.target.sm}")
        key = self._cache.graphs_key(self._parts, self._request.config)
        known = self._cache.graphs(key)
        if known is None:
            work = self._offline(partial(lower, self._parts, self._request.config))
            self._add(ChildJob("Inductor", work, LOWERING_LIMIT_S), self._lowered)
        for graph in known or ():
            self._lowered(graph)
        self._work()
        self._result.with_choices()
        if SASS in self._request.texts:
            self._disassemble()
        if known is None and not self._result.error:
            self._cache.put_graphs(key, tuple(self._result.graphs))
        return self._result

    def _work(self) -> None:
        """Run jobs until none is left, including those that results add."""
        for job, result in run_in_children(self._jobs, cores()):
            self._on_result[job](result)

    def _add(self, job: ChildJob[Any], on_result: OnResult) -> None:
        self._jobs.append(job)
        self._on_result[job] = on_result

    def _lowered(self, graph: LoweredGraph | ChildFailure) -> None:
        if isinstance(graph, ChildFailure):
            name = self._parts.joint.captured.subject.name
            self._result.error = f"no code for {self._request.target.sm} of `{name}`: {graph.message}"
            return
        self._result.graphs.append(graph)
        self._wanted += len(graph.kernels)
        for source in graph.kernels:
            self._build_kernel(replace(source, ran=self._request.ran.get((source.phase, source.name))))
        for source in graph.kernels:
            for index, choice in enumerate(source.choices):
                launch = Launch(choice.name, choice.call)
                other = KernelSource(choice.name, source.phase, choice.source, (launch,))
                self._build_choice(other, (source.phase, source.name), index)

    def _build_kernel(self, source: KernelSource) -> None:
        known = self._cache.kernel(source)
        if known is not None:
            self._built(source, known)
            return
        work = self._offline(partial(_one_kernel, source))
        job = ChildJob(f"Triton on `{source.name}`", work, self._request.kernel_limit_s)
        self._add(job, partial(self._compiled, source))

    def _build_choice(self, other: KernelSource, kernel: KernelKey, index: int) -> None:
        """Compile one choice; a choice that Triton rejects does not exist on the GPU either."""
        choices = self._result.choices.setdefault(kernel, {})

        def store(built: BuiltKernel | ChildFailure) -> None:
            if not isinstance(built, ChildFailure):
                self._cache.put_kernel(other, built)
                choices[index] = built
                announce_stage(f"choices of `{kernel[1]}`: {len(choices)}")

        known = self._cache.kernel(other)
        if known is not None:
            choices[index] = known
            return
        work = self._offline(partial(_one_kernel, other))
        self._add(ChildJob(f"Triton on `{other.name}`", work, self._request.kernel_limit_s), store)

    def _compiled(self, source: KernelSource, built: BuiltKernel | ChildFailure) -> None:
        if isinstance(built, ChildFailure):
            more = "; --kernel-time-limit gives it longer" if built.too_slow else ""
            built = BuiltKernel(source.name, error=built.message + more)
        self._cache.put_kernel(source, built)
        self._built(source, built)

    def _built(self, source: KernelSource, built: BuiltKernel) -> None:
        texts = tuple(text for text in built.texts if text[0] in self._request.texts)
        done = self._result.kernels
        done[source.phase, source.name] = replace(built, texts=texts)
        count = f"{len(done)} of {self._wanted}"
        announce_stage(f"kernels for {self._request.target.sm}: {count}: {source.name}")

    def _disassemble(self) -> None:
        """Add the SASS of every kernel, where it is requested and available."""
        batches: list[dict[str, KernelKey]] = []
        for key, kernel in self._result.kernels.items():
            if (sass := self._cache.sass(kernel.cubin) if kernel.cubin else "") is not None:
                self._add_sass(key, sass)
                continue
            name = next(iter(read_cubin(kernel.cubin)))
            batch = next((batch for batch in batches if name not in batch), None)
            if batch is None:
                batches.append(batch := {})
            batch[name] = key
        for batch in batches:
            announce_stage(f"machine code for {self._request.target.sm}: {len(batch)}")
            cubins = {name: self._result.kernels[key].cubin for name, key in batch.items()}
            job = ChildJob("the disassembler", partial(disassembled, cubins), self._request.kernel_limit_s)
            self._add(job, partial(self._disassembled, batch))
        self._work()

    def _disassembled(self, batch: dict[str, KernelKey], result: tuple[str, str] | ChildFailure) -> None:
        if not isinstance(result, ChildFailure):  # a kernel is shown without SASS too
            name, sass = result
            self._cache.put_sass(self._result.kernels[batch[name]].cubin, sass)
            self._add_sass(batch[name], sass)

    def _add_sass(self, key: KernelKey, sass: str) -> None:
        kernel = self._result.kernels[key]
        if sass:
            self._result.kernels[key] = replace(kernel, texts=(*kernel.texts, (SASS, sass)))

    def _offline(self, work: Callable[[], Iterable[Any]]) -> Callable[[], Iterator[Any]]:
        """Return the work with the target's GPU emulated."""
        prepare()

        def emulated() -> Iterator[Any]:
            with offline_gpu(self._request.target):
                yield from work()

        return emulated


def _one_kernel(source: KernelSource) -> Iterator[BuiltKernel]:
    yield build_kernel(source)
