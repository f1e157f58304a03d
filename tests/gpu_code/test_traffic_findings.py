"""AL604 and AL605 on real programs: each where it belongs, at its expression, and none on ordinary code."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from aotlens.diagnostics.diagnose import diagnose
from aotlens.diagnostics.findings import Limits
from aotlens.model.report import Diagnostic, Target
from tests.gpu_code.lowering import Case, Rows, rows_of

pytestmark = pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")


def sorted_between(x: Tensor) -> Tensor:
    return x.relu().sort(-1).values * 2


def sorted_behind(x: Tensor) -> Tensor:
    return x.sort(-1).values.relu() * 2


def transformed(x: Tensor) -> Tensor:
    return torch.fft.rfft(x * 0.5).abs() + 1


def product_between(x: Tensor, w: Tensor) -> Tensor:
    return functional.gelu(x.relu() @ w)


def one_field(points: Tensor) -> Tensor:
    return points[:, 0].exp()


def one_row(points: Tensor) -> Tensor:
    return points[0].exp()


def all_fields(points: Tensor) -> Tensor:
    return points[:, 0].exp() + points[:, 1] * points[:, 2] + points[:, 3]


def turned(x: Tensor, y: Tensor) -> Tensor:
    return x.t() + y


def single_elements(table: Tensor, at: Tensor) -> Tensor:
    return table[at] * 2


def whole_rows(table: Tensor, at: Tensor) -> Tensor:
    return table[at] * 2


def transposed_mean(x: Tensor) -> Tensor:
    return x.mean((0, 2))


NET = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
WIDE = torch.empty(64, 65536)
POINTS = torch.empty(1 << 20, 8)

CASES = {
    "sorted_between": Case(sorted_between, (WIDE,)),
    "sorted_behind": Case(sorted_behind, (WIDE,)),
    "transformed": Case(transformed, (WIDE,)),
    "product_between": Case(product_between, (torch.empty(2048, 2048), torch.empty(2048, 2048))),
    "one_field": Case(one_field, (POINTS,)),
    "one_row": Case(one_row, (torch.empty(8, 1 << 20),)),
    "all_fields": Case(all_fields, (torch.empty(1 << 20, 4),)),
    "turned": Case(turned, (torch.empty(2048, 4096), torch.empty(4096, 2048))),
    "single_elements": Case(single_elements, (torch.empty(1 << 22), torch.zeros(1 << 20, dtype=torch.int64))),
    "whole_rows": Case(whole_rows, (torch.empty(1 << 16, 64), torch.zeros(1 << 16, dtype=torch.int64))),
    "transposed_mean": Case(transposed_mean, (torch.empty(16, 256, 4096),)),
    "net": Case(NET, (torch.empty(16, 3, 256, 256),)),
}
QUIET = (
    "sorted_behind",
    "product_between",
    "one_row",
    "all_fields",
    "turned",
    "whole_rows",
    "transposed_mean",
    "net",
)


@pytest.fixture(scope="module")
def rows() -> dict[str, Rows]:
    return rows_of(CASES)


def _found(rows: dict[str, Rows], name: str, **limits: Any) -> tuple[Diagnostic, ...]:
    target = Target(name, name, "direct", "inference", None, kernels=rows[name].kernels)
    return tuple(
        found for found in diagnose(target, replace(Limits(), **limits)) if found.code in ("AL604", "AL605")
    )


def _line(function: Callable[..., Any]) -> int:
    return function.__code__.co_firstlineno + 1


@pytest.mark.rotates
def test_a_sort_between_elementwise_work(rows: dict[str, Rows]) -> None:
    (found,) = _found(rows, "sorted_between")
    assert (found.code, found.severity) == ("AL604", "information")
    assert found.span is not None
    assert found.span.line == _line(sorted_between)
    assert found.message == (
        "`x.relu().sort(-1)` runs as a library call on sm_90 (`aten.sort.stable`, inference), which cannot"
        " be fused: 32.0 MiB between it and the elementwise work before and after it are written to memory"
        " and read again"
    )
    assert [related.span.line for related in found.related] == [_line(sorted_between)] * 2


def test_library_calls_in_a_row_are_one_split(rows: dict[str, Rows]) -> None:
    (found,) = _found(rows, "transformed")
    assert found.message.startswith("`torch.fft.rfft(x * 0.5)` runs as a library call")


def test_one_field_of_many(rows: dict[str, Rows]) -> None:
    (found,) = _found(rows, "one_field")
    assert (found.code, found.severity) == ("AL605", "warning")
    assert found.span is not None
    assert found.span.line == _line(one_field)
    assert "reads 4.0 MiB that are scattered in memory: on sm_90 32.0 MiB are read for it" in found.message


def test_single_elements_at_given_places(rows: dict[str, Rows]) -> None:
    (found,) = _found(rows, "single_elements")
    assert (found.code, found.severity) == ("AL605", "information")
    assert "at data-dependent indices: on sm_90 up to 16.0 MiB are read" in found.message


@pytest.mark.parametrize("name", QUIET)
def test_ordinary_code_has_no_finding(rows: dict[str, Rows], name: str) -> None:
    assert _found(rows, name) == ()


def test_the_limits_are_those_given(rows: dict[str, Rows]) -> None:
    assert _found(rows, "sorted_between", split_bytes=1 << 30) == ()
    assert _found(rows, "one_field", sector_bytes=1 << 30) == ()
    assert _found(rows, "one_field", sector_factor=9.0) == ()
