"""A hand-made result of `aotlens fit` for the tests of every front end; its spans are in the sample model."""

from dataclasses import replace

from aotlens.model.fit import Fit, FitLine, FitMoment, FitPoint, GpuFit, KindBytes, PhasePeak
from aotlens.model.report import Report
from tests.report.sample_graph import span

__all__ = ["GIB", "MIB", "on_gpu", "sample_fit", "sample_fit_report"]

MIB, GIB = 1 << 20, 1 << 30
GATED, ADDED = span("hidden * hidden.sigmoid()"), span("x + self.down(gated)")
LAYER = span("nn.Linear(width, 4 * width)")


def sample_fit() -> Fit:
    """Twelve MiB at the peak, which is in the backward."""
    return Fit(
        step_peak_bytes=12 * MIB,
        at=FitMoment("backward", "aten.mm.default", ADDED, 3),
        by_kind=(
            KindBytes("saved activation", 6 * MIB, count=2),
            KindBytes("optimizer state", 4 * MIB, "exp_avg", 1),
            KindBytes("parameter", 2 * MIB, count=1),
        ),
        by_line=(
            FitLine(GATED, 6 * MIB, "saved activation", 2),
            FitLine(None, 4 * MIB, "optimizer state", 1),
            FitLine(LAYER, 2 * MIB, "parameter", 1),
        ),
        curve=(
            FitPoint(0, 8 * MIB, "forward", "aten.mul.Tensor", GATED),
            FitPoint(1, 10 * MIB, "forward", "aten.mul.Tensor", GATED),
            FitPoint(3, 12 * MIB, "backward", "aten.mm.default", ADDED),
            FitPoint(5, 7 * MIB, "optimizer", "aten.lerp_.Scalar", None),
        ),
        phases=(
            PhasePeak("forward", 10 * MIB, 1),
            PhasePeak("backward", 12 * MIB, 3),
            PhasePeak("optimizer", 7 * MIB, 5),
        ),
        step=3,
        is_periodic=True,
        assumptions=("the data loader has <no> workers",),
    )


def on_gpu(fit: Fit, capacity_bytes: int) -> Fit:
    """Return the result with a GPU of that capacity."""
    reserved_bytes = fit.step_peak_bytes + 2 * MIB
    gpu = GpuFit("T4", capacity_bytes, reserved_bytes, reserved_bytes <= capacity_bytes)
    return replace(fit, fits=gpu)


def sample_fit_report(fit: Fit | None = None) -> Report:
    return Report("2.13.0", "3.11.2", "fit train.py", (), (), fit=fit or sample_fit())
