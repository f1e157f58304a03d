"""Code for a GPU compared with eager, without a GPU: kernels run in the Triton interpreter.

Invariant: the comparison is the same as for every backend; where kernels generate random numbers, the
operators of eager use the same numbers, so that values are compared there too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from aotlens.capture.operators import aten
from aotlens.codegen.gpu.interpreter.process import interpreter
from aotlens.codegen.gpu.interpreter.records import (
    KernelFaultError,
    LaunchRecord,
    NotInterpretedError,
    RandomNumbersOfSeed,
)
from aotlens.codegen.gpu.interpreter_backend import InterpretedGraphs, InterpretedRun
from aotlens.codegen.gpu.node_values import expected_values, node_values
from aotlens.compiled import Compiled, call_with_other_code
from aotlens.gpu_emulation.autocast import assumed_casts
from aotlens.gpu_emulation.tensor_devices import ignoring_devices
from aotlens.model.source import Outcome, Verdict
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.rng_state import same_random_state
from aotlens.torch_api.patches.scopes import patched
from aotlens.torch_api.patches.table import FLEX_ON_CPU
from aotlens.verify.compare import Verification, compare
from aotlens.verify.double_precision import Widening, copy_in_double
from aotlens.verify.first_call import as_tuple
from aotlens.verify.gpu.random_replay import Law, RandomReplay, law_of
from aotlens.verify.observe import Observation, Probe, observe_alone
from aotlens.verify.rounding import double_reference, without_rounding_differences
from aotlens.verify.tensors.prepared_call import PreparedCall, copies, prepare_call, state_of
from aotlens.verify.tensors.values import TOLERANCES, close, computed_in, error_between, preview_values


def recording_in_double(
    prepared: PreparedCall,
    call: Callable[..., Any] | None,
    random_numbers: Sequence[RandomNumbersOfSeed | None],
) -> Observation | None:
    """Observe the recorded program in double precision with the kernels' random numbers.

    None if it needs too much memory or its arguments cannot be made.
    """
    wide = copy_in_double(prepared)
    if wide is None:
        return None
    with Widening(), RandomReplay(random_numbers):
        return observe_alone(wide, Probe(writes=False), call)


AFTER_OTHER_NUMBERS = ("value", "mutation", "gradient", "backward mutation")
"""Kinds of difference that different random numbers cause."""
BY_COUNTERPART = (
    "the dropout mask of attention comes from its CPU counterpart, the same in forward and backward"
)
DROPOUT_AT: dict[Any, int] = {
    aten._scaled_dot_product_flash_attention.default: 3,
    aten._scaled_dot_product_efficient_attention.default: 5,
}
"""GPU attention operators, with the position of their dropout probability."""


@dataclass(frozen=True, slots=True)
class GpuVerification:
    """The verdict on one call of code for a GPU."""

    comparison: Verification
    target: str
    kernels: tuple[tuple[str, int], ...]
    """Launches that were interpreted, by phase."""
    skipped: tuple[str, ...] = ()
    """Launches that could not be interpreted, each a sentence."""
    laws: tuple[Law, ...] = ()
    """The distributions of the random numbers that kernels generated."""
    unmatched: str = ""
    """Why values that depend on random numbers were not compared; empty if all were."""
    culprit: str = ""
    """The first kernel that writes a value different from torch's; empty if there is none."""
    fault: str = ""
    """The fault of a kernel, such as an access out of bounds; empty if there is none."""
    drops_in_attention: bool = False
    """Whether a fused attention applies dropout."""
    stopped: str = ""
    """Why a graph did not run to its end, for reasons other than its code."""

    @property
    def outcome(self) -> Outcome:
        if self.stopped or self.comparison.outcome == "not verified":
            return "not verified"
        if self.fault or not self.comparison.ok or any(law.deviates for law in self.laws):
            return "differs"
        return "not verified" if self.unmatched else "equal"

    @property
    def ok(self) -> bool:
        return self.outcome == "equal"

    def verdict(self) -> Verdict:
        """Return one line for the user, one about what ran, and one per launch that was not interpreted."""
        skipped = (f"not interpreted: {text}" for text in self.skipped)
        return Verdict(self.outcome, "\n".join([*self._finding(), *skipped]))

    def summary(self) -> str:
        """Return the verdict as text."""
        verdict = self.verdict()
        return "\n".join([verdict.headline, *verdict.details])

    def _finding(self) -> list[str]:
        if self.stopped or self.fault:
            return [self.stopped or self.fault]
        text = self.comparison.verdict().text
        if not self.comparison.ok:
            return list(filter(None, [text.replace("compiled", self.target), self.culprit]))
        deviating = next((law for law in self.laws if law.deviates), None)
        if deviating is not None:
            return [f"{deviating.count} random numbers are not {deviating.text}: {deviating.deviates}"]
        if self.unmatched:
            return [self.unmatched, self._interpreted()]
        return [text, "; ".join([self._interpreted(), *self._random()])]

    def _interpreted(self) -> str:
        counts = " and ".join(f"{count} {phase}" for phase, count in self.kernels)
        whole = sum(count for _, count in self.kernels)
        if not whole:
            return f"no kernel for {self.target}" + (": library calls alone" if counts else "")
        return f"{counts} {'kernel' if whole == 1 else 'kernels'} for {self.target}"

    def _random(self) -> list[str]:
        names = dict.fromkeys(law.text for law in self.laws)
        count = sum(law.count for law in self.laws)
        law = f"{count:,} random numbers, {' and '.join(names)}, the same forward and backward"
        return [*([law] if self.laws else []), *([BY_COUNTERPART] if self.drops_in_attention else [])]


def verify_gpu_code(
    options: CompileOptions, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> GpuVerification:
    """Compile `fn` for the GPU of the options with backend `Interpreted` and compare one call with eager."""
    prepared_calls = copies(prepare_call(fn, args, kwargs), 4)
    state = state_of(fn) if prepared_calls[0].fn is fn else []  # a copy of a module has its own
    with patched(FLEX_ON_CPU), same_random_state():
        compiled = compile_direct(
            prepared_calls[1].fn, prepared_calls[1].args, dict(prepared_calls[1].kwargs), options
        )
    return _Comparison(compiled, prepared_calls, state).verdict()


def verify_gpu_graph(
    compiled: Compiled,
    calls: tuple[Callable[..., Any], Callable[..., Any]],
    inputs: Sequence[object],
    names: Sequence[str],
) -> GpuVerification:
    """Compare a graph that Dynamo captured; `calls` are the compiled graph and eager's, with flat inputs."""
    prepared_calls = copies(prepare_call(calls[1], inputs, names=names), 4, keep_fn=True)
    call, eager = map(as_tuple, calls)
    return _Comparison(compiled, prepared_calls, state_of(*calls), call, eager).verdict()


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Makes one call in eager, by the kernels and, for random numbers, in torch with the same ones."""

    compiled: Compiled
    prepared_calls: tuple[PreparedCall, ...]
    state: list[Tensor]
    call: Callable[..., Any] | None = None
    eager: Callable[..., Any] | None = None

    def verdict(self) -> GpuVerification:
        with computed_in(computing_dtypes(self.compiled)):
            return self._verdict()

    def _verdict(self) -> GpuVerification:
        graphs: InterpretedGraphs = self.compiled.code.interpreted
        with patched(FLEX_ON_CPU):
            expected = observe_alone(self.prepared_calls[0], call=self.eager, state=self.state)
        graphs.runs.clear()
        actual = observe_alone(self.prepared_calls[1], call=self.call or self.compiled.call, state=self.state)
        random_numbers, unmatched = _random_numbers_of(graphs.runs), ""
        laws: tuple[Law, ...] = ()
        # other random numbers, unfused attention and the CPU's autocast rules all change eager's values
        drops = _drops_in_attention(self.compiled)
        if random_numbers or assumed_casts() or drops:
            replay = RandomReplay(random_numbers)
            by_torch = call_with_other_code(self.compiled, CompileOptions("eager"), self.prepared_calls[2].fn)
            with replay:
                expected = observe_alone(self.prepared_calls[2], call=as_tuple(by_torch), state=self.state)
            unmatched = _unmatched(replay, random_numbers)
            laws = tuple(map(law_of, replay.replayed))
        with ignoring_devices():
            comparison = self._without_roundings(
                compare(actual, expected), (actual, expected), random_numbers
            )
        comparison = _without(comparison, "random state")  # a GPU has its own generator
        if _takes_attention(graphs.runs):  # its outputs have strides that no CPU operator produces
            comparison = _without(comparison, "stride")
        if unmatched:
            comparison = _without(comparison, *AFTER_OTHER_NUMBERS)
        stopped = _raised(actual, NotInterpretedError)
        return GpuVerification(
            comparison=comparison,
            target=graphs.target.sm,
            kernels=_counts(graphs.runs),
            skipped=tuple(text for run in graphs.runs for text in run.skipped),
            laws=laws,
            unmatched=unmatched,
            culprit=self._culprit(graphs, comparison) if not stopped and not unmatched else "",
            fault=_raised(actual, KernelFaultError),
            drops_in_attention=drops,
            stopped=stopped,
        )

    def _without_roundings(
        self,
        comparison: Verification,
        sides: tuple[Observation, Observation],
        random_numbers: Sequence[RandomNumbersOfSeed | None],
    ) -> Verification:
        """Remove differences in values that are as close to double precision as eager's."""
        if not any(difference.max_abs is not None for difference in comparison.differences):
            return comparison
        prepared, call = self.prepared_calls[3], None
        # a recording of the direct frontend rejects other dtypes, so the user's function runs there
        if self.compiled.frontend == "dynamo":
            call = as_tuple(call_with_other_code(self.compiled, CompileOptions("eager"), prepared.fn))
        wide = recording_in_double(prepared, call, random_numbers)
        return without_rounding_differences(comparison, sides, double_reference(sides[1], wide))

    def _culprit(self, graphs: InterpretedGraphs, comparison: Verification) -> str:
        if not _is_in_values(comparison):
            return ""
        with ignoring_devices():  # the script's tensors may be marked as on the GPU, the results are not
            return culprit(graphs)


def _without(comparison: Verification, *kinds: str) -> Verification:
    """Remove the differences of these kinds."""
    remaining = tuple(difference for difference in comparison.differences if difference.kind not in kinds)
    return replace(comparison, differences=remaining, uses_random=False)


def _is_in_values(comparison: Verification) -> bool:
    """Return True if both sides ran and their values differ; a fault names its kernel itself."""
    return any(difference.kind in AFTER_OTHER_NUMBERS for difference in comparison.differences)


def computing_dtypes(compiled: Compiled) -> frozenset[torch.dtype]:
    """Return the dtypes in which the kernels compute: fusion changes where values are rounded."""
    parts = compiled.parts
    programs = [parts.forward, *([parts.backward] if parts.backward is not None else [])]
    values = (value for program in programs for node in program.nodes for value in node.results)
    dtypes = frozenset(value.dtype for value in values if isinstance(value, Tensor))
    return dtypes & frozenset(TOLERANCES)


def _takes_attention(runs: Sequence[InterpretedRun]) -> bool:
    return any("_scaled_dot_product_" in call.name for run in runs for call in run.graph.lowered.calls)


def _drops_in_attention(compiled: Compiled) -> bool:
    """Return True if a fused attention applies dropout; its counterpart here uses the same mask."""
    nodes = ((node, DROPOUT_AT.get(node.op)) for node in compiled.parts.forward.nodes)
    return any(
        position is not None and len(node.args) > position and node.args[position] for node, position in nodes
    )


def _random_numbers_of(runs: Sequence[InterpretedRun]) -> list[RandomNumbersOfSeed | None]:
    return [run.answer.random_numbers.get(index) for run in runs for index in range(run.answer.seeds)]


def _unmatched(replay: RandomReplay, random_numbers: Sequence[RandomNumbersOfSeed | None]) -> str:
    """Return why the kernels' random numbers could not be used in eager; empty if they could."""
    if replay.used == len(random_numbers):
        return ""
    return (
        f"values were not compared: the program has {replay.used} random operators and its kernels"
        f" {len(random_numbers) - random_numbers.count(None)}"
    )


def _raised(observation: Observation, kind: type[Exception]) -> str:
    """Return the message of an exception of this kind that the call or its backward raised."""
    failures = (observation.failure, observation.backward_failure)
    return next(
        (failure.message for failure in failures if failure is not None and issubclass(failure.kind, kind)),
        "",
    )


def _counts(runs: Sequence[InterpretedRun]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for run in runs:
        phase = run.graph.lowered.phase
        counts[phase] = counts.get(phase, 0) + len(run.answer.launches)
    return tuple(counts.items())


def culprit(graphs: InterpretedGraphs) -> str:
    """Name the first launch that writes a value different from torch's for the same node."""
    for run in graphs.runs:
        phase = run.graph.lowered.phase
        random_numbers = _random_numbers_of([run])
        replay = RandomReplay(random_numbers) if random_numbers else None
        values = node_values(graphs.program(phase), phase, list(run.job.inputs), replay)
        answer = interpreter().run(replace(run.job, return_buffers=True))
        for launch in answer.launches:
            wrong = _first_wrong(launch, expected_values(run.graph, launch.location, values))
            if wrong:
                locations = ", ".join(graphs.source_lines(run.graph, launch.location))
                name = f"the {phase} kernel `{launch.location.kernel}` ({locations})"
                return f"the first kernel that differs is {name}: {wrong}"
    return ""


def _first_wrong(launch: LaunchRecord, expected: Mapping[int, tuple[str, Tensor]]) -> str:
    """Describe what a launch writes where torch computes another value; empty if all values agree."""
    for index, buffer in launch.buffers:
        node, value = expected.get(index, ("", None))
        if value is None or buffer.numel() != value.numel():
            continue
        written = buffer.reshape(value.shape)
        if not close(written, value):
            most = f"max error {error_between(written, value):.2g}"
            actual_text, expected_text = preview_values(written), preview_values(value)
            return f"for `{node}` it writes {actual_text}, torch computes {expected_text} ({most})"
    return ""
