"""Observe a distributed script one rank at a time, and join the ranks' reports.  Stdlib only.

Invariant: each rank runs in its own process, one after the other, so that memory and processors are those of
one rank.
"""

from collections.abc import Sequence
from dataclasses import replace

from aotlens.fit.job import FIT_CHILD, FitJob
from aotlens.model.fit import Distribution, Fit
from aotlens.session.why.observation import Observation, observe_script

__all__ = ["fit_on_ranks"]


def fit_on_ranks(job: FitJob, ranks: Sequence[int]) -> Observation:
    """Return what was observed on the rank with the highest peak, with the records of all of these ranks.

    The first rank that fails, or that leaves no report, ends the observation and is returned alone.
    """
    observations: list[Observation] = []
    for rank in ranks:
        observation = observe_script(replace(job, rank=rank), FIT_CHILD)
        if observation.failure is not None or _distribution(observation) is None:
            return observation
        observations.append(observation)
    return _joined(observations)


def _joined(observations: Sequence[Observation]) -> Observation:
    highest = max(observations, key=lambda each: _fit(each).step_peak_bytes)
    parts = [part for each in observations if (part := _distribution(each)) is not None]
    shown, report = _distribution(highest), highest.report
    assert shown is not None
    assert report is not None
    joined = replace(shown, ranks=tuple(row for part in parts for row in part.ranks))
    return replace(highest, report=replace(report, fit=replace(_fit(highest), distribution=joined)))


def _fit(observation: Observation) -> Fit:
    assert observation.report is not None
    assert observation.report.fit is not None
    return observation.report.fit


def _distribution(observation: Observation) -> Distribution | None:
    report = observation.report
    return None if report is None or report.fit is None else report.fit.distribution
