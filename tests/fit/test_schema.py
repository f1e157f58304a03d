"""The key `fit` of a report has the fields that the design of the report names."""

from typing import Any

from aotlens.model.codec import encode
from tests.fit.sample import GIB, on_gpu, sample_fit, sample_fit_report

DESIGNED = {"step_peak_bytes", "at", "by_kind", "by_line", "curve", "fits", "advice"}


def test_fields_are_those_of_the_design() -> None:
    fit: Any = encode(sample_fit_report(on_gpu(sample_fit(), GIB)))["fit"]
    assert set(fit) >= DESIGNED
    assert all({"kind", "bytes"} <= set(row) for row in fit["by_kind"])
    assert all({"span", "bytes"} <= set(row) for row in fit["by_line"])
    assert {"gpu", "capacity_bytes", "reserved_bytes", "ok"} <= set(fit["fits"])


def test_nothing_is_there_without_a_fit_or_a_gpu() -> None:
    report: Any = encode(sample_fit_report())
    assert report["fit"]["fits"] is None
    assert report["fit"]["advice"] == []
