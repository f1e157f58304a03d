"""The partition of the sample report, and one that the solver chose: savings, what-ifs, certificates."""

from dataclasses import replace

from aotlens.model import (
    BudgetResult,
    Certificate,
    FrontierPoint,
    Partition,
    RecomputedValue,
    SavedValue,
    Totals,
    Use,
    WhatIf,
)
from tests.report.sample_graph import DOWN, UP, span, tensor

CHEAP = "cheap to compute again"


def sample_partition(extra_saved: int) -> Partition:
    """Return the partition of the policy `min-cut`, with so many more saved values."""
    hidden = tensor("f32[32, 64]")
    gelu_at, up_at, gate_at = span("functional.gelu(self.up(x))"), span(UP), span("hidden * hidden.sigmoid()")
    saved = (
        SavedValue(
            "addmm",
            hidden,
            8192,
            "new",
            "expensive to recompute (matrix product)",
            up_at,
            (Use("gelu_backward", gelu_at),),
            donated=True,
            code="costly",
            op="aten.addmm.default",
        ),
        SavedValue(
            "gelu",
            hidden,
            0,
            "output",
            "kept alive by an output",
            gelu_at,
            (Use("mul_2", gate_at), Use("sigmoid", span("hidden.sigmoid()"))),
            name="hidden",
            code="output",
            freedom="forced",
            op="aten.gelu.default",
        ),
        SavedValue(
            "down_weight",
            tensor("f32[16, 64]", grad=True),
            0,
            "parameter",
            "a parameter, alive anyway",
            span(DOWN),
            (Use("mm", span(DOWN)),),
            name="down.weight",
            code="parameter",
            freedom="forced",
        ),
        SavedValue(
            "x",
            tensor("f32[32, 16]"),
            0,
            "input",
            "an argument, alive anyway",
            up_at,
            (Use("mm_2", up_at),),
            name="x",
            code="input",
            freedom="forced",
        ),
    )
    more = tuple(
        SavedValue(
            f"fw_{number * 20}", hidden, 8192, "new", "the cheapest cut", up_at, (Use(f"bw_{number}", up_at),)
        )
        for number in range(extra_saved)
    )
    recomputed = (
        RecomputedValue(
            "sigmoid", 8192, 8192, CHEAP, span("hidden.sigmoid()"), "choice", "choice", "aten.sigmoid.default"
        ),
        RecomputedValue("mul_1", 8192, 2048, CHEAP, gate_at, "choice", "choice", "aten.mul.Tensor"),
    )
    total = 8192 * (1 + extra_saved)
    frontier = (FrontierPoint(8192, 10240), FrontierPoint(16384, 2048), FrontierPoint(24576, 0))
    return Partition("min-cut", (*saved, *more), recomputed, total, frontier, default_bytes=24576)


def chosen_partition() -> Partition:
    """`Block` within a budget, where the solver's choices carry certificates and an override was obeyed."""
    plain = sample_partition(0)
    up_at = span(UP)
    certificate = Certificate(
        above="addmm",
        above_reason="expensive to recompute",
        above_span=up_at,
        path=("addmm", "gelu"),
        below="mul_2",
        below_span=span("hidden * hidden.sigmoid()"),
        price_bytes=1536,
        price_flops=-2048,
        instead=("sigmoid", "mul_1"),
    )
    chosen = replace(
        plain.saved[1],
        bytes=8192,
        owner="new",
        reason="the least recomputation within the memory budget",
        code="budget",
        freedom="choice",
        overrode="an activation checkpoint",
        certificate=certificate,
    )
    forced = replace(plain.recomputed[0], reason="an override in the policy", code="user", freedom="user")
    before, after = Totals(16384, 10240, 32768), Totals(17920, 8192, 34304)
    return replace(
        plain,
        policy="budget=16KiB,recompute:sigmoid",
        saved=(plain.saved[0], chosen, *plain.saved[2:]),
        recomputed=(forced, *plain.recomputed[1:]),
        saved_bytes=16384,
        frontier=tuple(FrontierPoint(8192 + 512 * step, 20480 - 640 * step) for step in range(33)),
        budget=BudgetResult(16384, 16384, 10240, 10000, False, "integer programming, stopped early"),
        what_if=(WhatIf("recompute:hidden", before, after, ("gelu",), ("sigmoid", "mul_1")),),
    )
