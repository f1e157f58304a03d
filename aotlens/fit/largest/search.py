"""Run a script at three sizes, compute the largest size that fits, and run it there to verify.

Invariant: a size that is reported as the largest was run, and so was the next one.
"""

from collections.abc import Callable
from dataclasses import replace

from aotlens.errors import UserError
from aotlens.fit.job import FitJob
from aotlens.fit.largest.growth import Growth, growth_of
from aotlens.fit.largest.varied_size import VariedSize, find_size
from aotlens.model.fit import BatchFit, BatchPeak, Fit, GpuFit
from aotlens.session.why.observation import Observation

__all__ = ["fit_largest"]

MOST_ROUNDS = 3
"""Computations; all but the first one include the runs that contradicted the one before."""

Observe = Callable[[FitJob], Observation]


def fit_largest(
    job: FitJob, name: str, observe: Observe, say: Callable[[str], None] = lambda text: None
) -> Observation:
    """Return the run at the script's own size, with the largest size that fits `job.gpu`.

    `say` gets a line before each run.

    Raises:
        UserError: there is no such size, the script fails with another one, or memory does not depend on it.
    """
    assert job.gpu is not None
    size = find_size(job, name)
    say(_running(size, size.value))
    first = observe(job)
    if first.report is None or first.report.fit is None or first.failure is not None:
        return first
    search = _Search(job, size, observe, say)
    search.runs[size.value] = first.report.fit
    fit = replace(first.report.fit, batch=search.result())
    return replace(first, report=replace(first.report, fit=fit))


def _running(size: VariedSize, value: int) -> str:
    return f"aotlens: running the script with {size.name} = {value}"


class _Search:
    """The runs of one script at several sizes."""

    def __init__(self, job: FitJob, size: VariedSize, observe: Observe, say: Callable[[str], None]) -> None:
        assert job.gpu is not None
        self._say = say
        self._job, self._size, self._gpu, self._observe = job, size, job.gpu, observe
        self.runs: dict[int, Fit] = {}

    def result(self) -> BatchFit:
        """Compute the largest size, and again with the runs that contradict it."""
        value = self._size.value
        sizes: tuple[int, ...] = (value, 2 * value, 3 * value)
        for _ in range(MOST_ROUNDS):
            growth = self._growth(sizes)
            largest = growth.largest(self._gpu)
            if largest is None:
                raise UserError(
                    f"the memory of the step does not grow with `{self._size.name}`: the script may set it"
                    " again afterwards, as from a configuration file; `--largest=--NAME` varies an option"
                )
            result = self._verified(growth, largest)
            if result.is_verified:
                break
            sizes = self._nearest(largest)
        return result

    def _growth(self, sizes: tuple[int, ...]) -> Growth:
        growth = growth_of(sizes, [self._run(size) for size in sizes])
        if growth is None:
            shown = ", ".join(map(str, sizes))
            raise UserError(
                f"with `{self._size.name}` at {shown} the steps of {self._job.path} allocate in different"
                " orders, so larger steps cannot be computed; choose another start in the script"
            )
        return growth

    def _run(self, value: int) -> Fit:
        if value not in self.runs:
            self._say(_running(self._size, value))
            observed = self._observe(self._size.job_with(self._job, value))
            report = observed.report
            if report is None or report.fit is None or observed.failure is not None:
                why = observed.failure.message if observed.failure is not None else "it left no report"
                raise UserError(f"{self._job.path} fails with `{self._size.name}` = {value}: {why}")
            self.runs[value] = report.fit
        return self.runs[value]

    def _verified(self, growth: Growth, largest: int) -> BatchFit:
        """Run the script at a computed largest size and at the next one; return both with the computation."""
        computed = growth.gpu_fit(largest, self._gpu)
        checked = [self._gpu_fit(size) for size in (largest, largest + 1) if size]
        kinds = growth.kinds_at_peak(max(largest, 1))
        error = (
            self._run(largest).step_peak_bytes - sum(row.bytes_at(largest) for row in kinds) if largest else 0
        )
        return BatchFit(
            varied=self._size.name,
            fixed_bytes=sum(row.fixed_bytes for row in kinds),
            bytes_per_item=sum(row.bytes_per_item for row in kinds),
            bytes_per_square=sum(row.bytes_per_square for row in kinds),
            kinds=kinds,
            peaks=tuple(self._peak(size) for size in sorted(self.runs)),
            error_bytes=error,
            largest=largest,
            capacity_bytes=computed.capacity_bytes,
            gpu=computed.gpu,
            is_verified=[each.ok for each in checked] == ([True, False] if largest else [False]),
        )

    def _gpu_fit(self, size: int) -> GpuFit:
        fits = self._run(size).fits
        assert fits is not None  # the job names a GPU
        return fits

    def _peak(self, size: int) -> BatchPeak:
        use = self._gpu_fit(size)
        return BatchPeak(size, self._run(size).step_peak_bytes, use.reserved_bytes)

    def _nearest(self, largest: int) -> tuple[int, ...]:
        """Return three sizes that were run, those around the computed one and the next smaller."""
        return tuple(sorted(sorted(self.runs, key=lambda size: abs(size - largest))[:3]))
