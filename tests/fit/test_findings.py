"""AL307, AL308 and AL807: what is reported about a step, and what is not."""

from dataclasses import replace

from aotlens.diagnostics.budgets import Budget, over_step_budget
from aotlens.diagnostics.step_memory import step_findings
from aotlens.model.fit import Fit, FitLine
from tests.fit.sample import GATED, GIB, LAYER, MIB, on_gpu, sample_fit


def codes(fit: Fit) -> list[str]:
    return [finding.code for finding in step_findings(fit)]


def test_a_step_that_does_not_fit_names_the_gpu_and_the_largest_lines() -> None:
    finding = next(step_findings(on_gpu(sample_fit(), 13 * MIB)))
    assert (finding.code, finding.severity, finding.span) == ("AL307", "error", sample_fit().at.span)
    assert finding.message.startswith(
        "the step does not fit T4: 14.0 MiB reserved of 13.0 MiB, 1.0 MiB too little; 12.0 MiB at the peak"
    )
    assert [(related.span, related.message) for related in finding.related] == [
        (GATED, "6.0 MiB held at the peak"),
        (LAYER, "2.0 MiB held at the peak"),
    ]
    assert "AL307" not in codes(on_gpu(sample_fit(), GIB))


def test_a_line_with_half_of_the_peak_is_reported_with_what_to_do() -> None:
    (finding,) = step_findings(sample_fit())
    assert (finding.code, finding.severity, finding.span) == ("AL308", "information", GATED)
    assert finding.message == (
        "6.0 MiB of the step's peak of 12.0 MiB (50%) are held by this line, as saved activation: checkpoint"
        " it, or save it in a smaller dtype"
    )
    assert finding.cost is not None
    assert finding.cost.share == 0.5


def test_parameters_and_small_parts_are_not_reported() -> None:
    held = FitLine(LAYER, 12 * MIB, "parameter", 1)
    small = FitLine(GATED, 3 * MIB, "saved activation", 1)
    assert codes(replace(sample_fit(), by_line=(held, small))) == []
    tiny = FitLine(GATED, 6, "saved activation", 1)
    assert codes(replace(sample_fit(), step_peak_bytes=12, by_line=(tiny,))) == []


def test_a_budget_is_for_the_peak_of_a_step() -> None:
    (finding,) = over_step_budget(sample_fit(), Budget(step_peak=10 * MIB))
    assert (finding.code, finding.severity) == ("AL807", "error")
    assert finding.message.startswith(
        "the step needs 12.0 MiB at its peak, over its budget of 10.0 MiB (step-peak); the peak is in the"
        " backward, aten.mm at"
    )
    assert list(over_step_budget(sample_fit(), Budget(step_peak=12 * MIB))) == []
    assert list(over_step_budget(sample_fit(), Budget())) == []
    without_step = replace(sample_fit(), step=0)
    assert list(over_step_budget(without_step, Budget(step_peak=1))) == []
