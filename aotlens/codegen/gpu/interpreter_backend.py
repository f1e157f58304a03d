"""The interpreter backend: kernels for a GPU run on this machine's CPU, in Triton's interpreter.

Invariant: the graphs are those that would be compiled for the GPU; only memory, library calls and launches
are the CPU's.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from aotlens.codegen.gpu.child_processes import ChildFailure, ChildJob, run_in_children
from aotlens.codegen.gpu.interpreter.process import interpreter
from aotlens.codegen.gpu.interpreter.records import (
    MESSAGES,
    Answer,
    Finding,
    Job,
    KernelFaultError,
    LaunchLocation,
    NotInterpretedError,
)
from aotlens.codegen.gpu.interpreter.transfer import copied, in_shared_memory, write_back
from aotlens.codegen.gpu.lowering import lower_to_run
from aotlens.codegen.gpu.machine_code.triton_build import prepare
from aotlens.codegen.gpu.node_values import expected_values, kernel_source, node_values, written_arguments
from aotlens.codegen.gpu.offline.context import offline_gpu
from aotlens.codegen.gpu.offline.requirements import require_triton
from aotlens.codegen.gpu.records import RunnableGraph
from aotlens.codegen.graph_calls import as_boxed
from aotlens.codegen.records import Generated, GraphCode
from aotlens.errors import BackendError
from aotlens.ir.graph_module import to_graph_module
from aotlens.ir.program import Program
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.model.gpus.names import find_target
from aotlens.model.report import Phase
from aotlens.observe import announce_stage
from aotlens.options import CompileOptions, Interpreted
from aotlens.partition.records import Partitioned

LOWERING_LIMIT_S = 600.0
MOST_SKIPPED = 8
"""The most kernels of a graph whose results may be computed by torch instead."""


def interpreted_code(parts: Partitioned, options: CompileOptions) -> Generated:
    """Return code whose graphs run in the interpreter.

    Raises:
        UserError: no GPU of that name, or Triton is missing.
    """
    assert isinstance(options.backend, Interpreted)  # checked by the caller
    assert options.gpu is not None  # required by Interpreted
    require_triton()
    interpreter()  # start it now, so that it imports while this process generates code
    graphs = InterpretedGraphs(
        parts, find_target(options.gpu), dict(options.inductor_config), options.backend.own_blocks
    )
    forward: Phase = "inference" if parts.backward is None else "forward"
    code = GraphCode(parts.forward, partial(graphs.compiled, forward))
    if parts.backward is None:
        return Generated(code, None, interpreted=graphs)
    backward = GraphCode(parts.backward, partial(graphs.compiled, "backward"), lazy=options.lazy_backward)
    return Generated(code, backward, interpreted=graphs)


@dataclass(frozen=True, slots=True)
class InterpretedRun:
    """One run of one graph."""

    graph: RunnableGraph
    job: Job
    """Its inputs are copies from before the run."""
    answer: Answer
    skipped: tuple[str, ...] = ()
    """A sentence for each kernel that could not be interpreted, whose results torch computed instead."""


@dataclass(slots=True)
class InterpretedGraphs:
    """Forward and backward of one target; mutable: they record the last runs."""

    parts: Partitioned
    target: GpuTarget
    config: dict[str, Any]
    own_blocks: bool
    runs: list[InterpretedRun] = field(default_factory=list)
    """In order; a caller that compares calls clears it before each."""
    _lowered: tuple[RunnableGraph, ...] | None = None
    _states: tuple[Any, ...] = ()
    """The RNG states that the last forward returned for the backward's attentions."""
    _jobs: int = 0

    def compiled(self, phase: Phase) -> Callable[[list[Any]], Any]:
        """Return the graph as the module text calls it.

        Raises:
            BackendError: Inductor has no code for it.
        """
        graph = next(graph for graph in self.lowered() if graph.lowered.phase == phase)
        program = self.program(phase)
        if not graph.lowered.source:  # it computes nothing
            return as_boxed(to_graph_module(program, phase != "inference"))
        count = len(program.outputs) + len(graph.adapter.crossed_writes)
        return graph.adapter.code(partial(self._call, graph, count))

    def program(self, phase: Phase) -> Program:
        if phase != "backward":
            return self.parts.forward
        assert self.parts.backward is not None  # it has no code otherwise
        return self.parts.backward

    def lowered(self) -> tuple[RunnableGraph, ...]:
        """Return both graphs, lowered in a child process at the first call."""
        if self._lowered is None:
            prepare()
            announce_stage(f"code for {self.target.sm}")
            job = ChildJob("Inductor", self._lower, LOWERING_LIMIT_S)
            graphs = []
            for _, result in run_in_children(deque([job]), 1):
                if isinstance(result, ChildFailure):
                    raise self._no_code(result)
                graphs.append(result)
            self._lowered = tuple(graphs)
        return self._lowered

    def _lower(self) -> Iterator[RunnableGraph]:
        with offline_gpu(self.target):
            yield from lower_to_run(self.parts, self.config)

    def _no_code(self, failed: ChildFailure) -> BackendError:
        subject = self.parts.joint.captured.subject
        message = f"no code for {self.target.sm} of `{subject.name}`: {failed.message}"
        return BackendError(message, span=subject.span)

    def _call(self, graph: RunnableGraph, count: int, args: list[Any]) -> tuple[Any, ...]:
        """Run a graph in the interpreter's process, with its writes and random state brought back."""
        # An output may be one of the inputs (`in_shared_memory`): a graph's outputs carry no grad_fn.
        inputs = [value.detach() if isinstance(value, torch.Tensor) else value for value in args]
        args.clear()
        if graph.lowered.phase == "backward":
            inputs += [self._states[index] for index in graph.states]
        if any(isinstance(value, torch.Tensor) and value.is_meta for value in inputs):
            raise NotInterpretedError(f"the {graph.lowered.phase} graph takes a tensor without values (meta)")
        announce_stage(f"{graph.lowered.phase} in the interpreter")
        run = self._run(graph, self.job(graph, inputs))
        self.runs.append(run)
        answer = run.answer
        if answer.finding is not None:
            raise self._error(graph, answer.finding)
        write_back(inputs, answer)
        torch.set_rng_state(answer.random_state)
        devices = self._devices(graph.lowered.phase, len(answer.outputs))
        results = tuple(in_shared_memory(answer.outputs, inputs, devices))
        if graph.lowered.phase == "forward":
            self._states = results[count:]
        return results[:count]

    def _devices(self, phase: Phase, count: int) -> list[torch.device | None]:
        """Return the devices of the outputs, in order; extra outputs stay on the CPU."""
        values = [getattr(output.value, "val", None) for output in self.program(phase).outputs]
        known = [value.device if isinstance(value, torch.Tensor) else None for value in values]
        return [*known, *([None] * (count - len(known)))]

    def _run(self, graph: RunnableGraph, job: Job) -> InterpretedRun:
        """Run the graph, and skip kernels that cannot be interpreted while torch can compute what they
        write."""
        skipped: tuple[str, ...] = ()
        while True:
            answer = interpreter().run(job)
            finding = answer.finding
            if finding is None or finding.kind != "not interpreted" or len(skipped) >= MOST_SKIPPED:
                return InterpretedRun(graph, job, answer, skipped)
            instead = self._expected_writes(graph, job, finding.location)
            if not instead:
                return InterpretedRun(graph, job, answer, skipped)
            job = replace(job, precomputed={**job.precomputed, finding.location: instead})
            skipped += (self.describe_finding(graph, finding),)

    def _expected_writes(
        self, graph: RunnableGraph, job: Job, location: LaunchLocation
    ) -> dict[int, torch.Tensor]:
        """Return what a launch should write; empty where a part is unknown or random."""
        written = set(written_arguments(graph, location.kernel))
        if not written or "rand" in kernel_source(graph, location.kernel):
            return {}
        phase = graph.lowered.phase
        expected = expected_values(graph, location, node_values(self.program(phase), phase, list(job.inputs)))
        known = {index: value for index, (_, value) in expected.items() if index in written}
        return known if known.keys() == written else {}

    def job(self, graph: RunnableGraph, inputs: list[Any]) -> Job:
        """Build the job of a run; its seeds are derived from the CPU generator, which kernels do not
        advance."""
        state = torch.get_rng_state()
        self._jobs += 1
        digest = hashlib.sha256(state.numpy().tobytes() + self._jobs.to_bytes(8, "little")).digest()
        return Job(
            source=graph.lowered.source,
            constants=graph.constants,
            inputs=tuple(copied(inputs)),
            random_state=state,
            seed=int.from_bytes(digest[:6], "little"),
            own_blocks=self.own_blocks,
        )

    def _error(self, graph: RunnableGraph, finding: Finding) -> Exception:
        message = self.describe_finding(graph, finding)
        if finding.kind in ("out of bounds", "failed assertion"):
            return KernelFaultError(message)
        return NotInterpretedError(message)

    def describe_finding(self, graph: RunnableGraph, finding: Finding) -> str:
        """Return a finding as one sentence, with the kernel's line and the user's."""
        kernel = finding.location.kernel
        subject = (
            f"the {graph.lowered.phase} kernel `{kernel}`" if kernel else f"the {graph.lowered.phase} graph"
        )
        line = f", at `{finding.line}`" if finding.line else ""
        locations = self.source_lines(graph, finding.location)
        users = f" (computes {', '.join(locations)})" if locations else ""
        return f"{subject}{users} {MESSAGES[finding.kind]}{line}: {finding.message}"

    def source_lines(self, graph: RunnableGraph, location: LaunchLocation) -> tuple[str, ...]:
        """Return the user's lines that a launch computes."""
        calls = [call for call in graph.lowered.calls if call.name == location.kernel]
        if location.occurrence >= len(calls):
            return ()
        nodes = {node.name: node for node in self.program(graph.lowered.phase).nodes}
        wanted = (name for name in calls[location.occurrence].nodes if name in nodes)
        spans = (nodes[name].origin.location.innermost for name in wanted)
        return tuple(dict.fromkeys(f"{span.file}:{span.line}" for span in spans if span is not None))
