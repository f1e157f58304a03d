"""One case judged: every sample compiled and compared with eager, then called again on other values."""

import itertools
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch

from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.verify.compare import compare
from aotlens.verify.observe import Probe, observe_alone
from aotlens.verify.tensors.prepared_call import PreparedCall, copies, prepare_call
from tests.operators.cases import NOT_COMPARABLE, Case, Sample

Verdict = Literal["equal", "differs", "unsupported", "not comparable", "no sample"]
LOOK = Probe(writes=False)


@dataclass(frozen=True, slots=True)
class Judged:
    """How some samples of a case fared."""

    verdict: Verdict
    reason: str = ""
    """Of the first sample that is not equal; empty when all are."""
    equal: int = 0
    """Samples; what eager itself refuses is not counted."""
    unsupported: int = 0
    """Samples."""
    ended: bool = True
    """Whether the case has no further samples."""


def judge_case(case: Case, first: int = 0, stop: int | None = None) -> Judged:
    """The worst verdict over the samples from `first` to before `stop`; None takes all."""
    if case.name in NOT_COMPARABLE:
        return Judged("not comparable", NOT_COMPARABLE[case.name])
    refusals: list[str] = []
    equal = taken = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the samples warn as eager warns
        for sample in itertools.islice(case.samples(), first, stop):
            taken += 1
            try:
                found = judge_sample(sample, case.dynamic)
            except UnsupportedError as error:
                refusals.append(str(error))
                continue
            if found:
                return Judged("differs", "; ".join(found), equal, len(refusals), ended=False)
            equal += found is not None
    ended = stop is None or taken < stop - first
    if refusals:
        return Judged("unsupported", refusals[0], equal, len(refusals), ended)
    return Judged("equal" if equal else "no sample", "", equal, 0, ended)


def judge_sample(sample: Sample, dynamic: bool) -> list[str] | None:
    """What differs from eager; None when eager itself refuses the sample."""
    torch.manual_seed(0)
    eager, compiled = copies(prepare_call(sample.fn, sample.args, sample.kwargs))
    expected = observe_alone(eager, LOOK)
    if expected.failure is not None:
        return None
    options = CompileOptions(backend="eager", dynamic=dynamic)
    call = compile_direct(compiled.fn, compiled.args, dict(compiled.kwargs), options).call
    found = observe_alone(compiled, LOOK, call)
    differences = [str(difference) for difference in compare(found, expected).differences]
    if sample.other is None or differences:
        return differences
    return _on_other_values((eager, compiled), call, sample.other)


def _on_other_values(
    worlds: tuple[PreparedCall, PreparedCall], call: Any, other: tuple[Any, Any]
) -> list[str]:
    """What differs when both are called again; each side keeps its own state."""
    eager, compiled = (copies(prepare_call(given.fn, *other), 1, keep_fn=True)[0] for given in worlds)
    expected = observe_alone(eager, LOOK)
    if expected.failure is not None:
        return []
    found = observe_alone(compiled, LOOK, call)
    return [f"with other values: {difference}" for difference in compare(found, expected).differences]
