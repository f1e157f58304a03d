"""The family AL3 on constructed reports, and on checkpoints that cannot be followed."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from aotlens.diagnostics.diagnose import diagnose
from aotlens.diagnostics.findings import MIB, Limits
from aotlens.model import BudgetResult, Diagnostic, Related, Saving, Target, Totals
from aotlens.model.source import Cost
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.report.sample import span, training_target

EXAMPLE = Path(__file__).parents[3] / "examples" / "train_gpt.py"
SAMPLE = training_target()
assert SAMPLE.partition is not None
PARTITION = SAMPLE.partition
VALUE = replace(PARTITION.saved[0], bytes=4 * MIB)
UP = VALUE.span


def found(target: Target, limits: Limits | None = None) -> list[Diagnostic]:
    return [entry for entry in diagnose(target, limits) if entry.code.startswith("AL3")]


def holding(*values: Any, **changes: Any) -> Target:
    partition = replace(PARTITION, saved=values, saved_bytes=16 * MIB, recomputed=(), **changes)
    return replace(SAMPLE, partition=partition)


def test_savings_of_a_loop_are_reported_once() -> None:
    cause = span("cache.mul_(0.9)")
    value = replace(VALUE, saving=Saving("precision", 2 * MIB, "it is made f32", cause))
    assert found(holding(value, value), Limits(saved_bytes=1 << 40)) == [
        Diagnostic(
            "AL302",
            "information",
            "`self.up(x)` is saved for the backward as f32[32, 64], 8.0 MiB (2 × 4.0 MiB): it is made f32;"
            " 4.0 MiB could be freed",
            UP,
            (Related(cause, "the cause is here"),),
            cost=Cost("peak bytes", 4 * MIB, 1.0),
        )
    ]


def test_a_small_saving_is_not_reported() -> None:
    assert found(holding(replace(VALUE, saving=Saving("mask", MIB - 1, "a mask")))) == []
    share = replace(VALUE, saving=Saving("mask", MIB, "a mask"))
    partition = replace(PARTITION, saved=(share,), saved_bytes=64 * MIB)
    assert found(replace(SAMPLE, partition=partition)) == []


def test_dead_values_are_warnings() -> None:
    dead = replace(VALUE, saving=Saving("dead", 4 * MIB, "nobody reads it"))
    assert [(entry.code, entry.severity) for entry in found(holding(dead))] == [("AL304", "warning")]


def test_a_checkpoint_that_is_not_followed() -> None:
    value = replace(
        VALUE, overrode="an activation checkpoint", reason=("recomputing it would give other random numbers")
    )
    assert [entry.message for entry in found(holding(value))] == [
        (
            "`self.up(x)` is saved for the backward, 4.0 MiB, despite an activation checkpoint:"
            " recomputing it would give other random numbers"
        )
    ]


def test_a_policy_that_is_not_followed() -> None:
    again = replace(PARTITION.recomputed[0], bytes=4 * MIB, overrode="a checkpoint's policy")
    target = replace(SAMPLE, partition=replace(PARTITION, saved=(), recomputed=(again, again)))
    assert [entry.message for entry in found(target)] == [
        "`hidden.sigmoid()` is recomputed despite a checkpoint's policy: cheap to compute again"
    ]


BUDGET = BudgetResult(MIB, MIB, 100, 100, True, "exact")


def test_a_budget_that_raises_the_peak_is_a_warning() -> None:
    target = holding(budget=BUDGET, unbudgeted=Totals(32 * MIB, 0, 20 * MIB))
    assert target.memory is not None
    higher = replace(target, memory=replace(target.memory, peak_bytes=24 * MIB))
    assert [(entry.code, entry.severity, entry.message) for entry in found(higher)] == [
        (
            "AL306",
            "warning",
            (
                "the memory budget of 1.0 MiB raises the predicted peak to 24.0 MiB, from 20.0 MiB without"
                " it: it saves 16.0 MiB instead of 32.0 MiB, and the values that the backward recomputes"
                " are alive together"
            ),
        )
    ]
    assert found(replace(target, memory=replace(target.memory, peak_bytes=20 * MIB))) == []
    assert found(holding(budget=BUDGET)) == []


def test_a_budget_is_compared_with_larger_ones() -> None:
    larger = (Totals(24 * MIB, 0, 16 * MIB), Totals(30 * MIB, 0, 19 * MIB))
    target = holding(budget=BUDGET, unbudgeted=Totals(32 * MIB, 0, 20 * MIB), larger_budgets=larger)
    assert target.memory is not None
    (told,) = found(replace(target, memory=replace(target.memory, peak_bytes=18 * MIB)))
    assert "to 18.0 MiB, from 16.0 MiB with a larger budget" in told.message


def target_of(function: Callable[..., Any], *args: Tensor, policy: str = "min-cut") -> Target:
    return compile_direct(function, args, {}, CompileOptions(backend="eager", policy=policy)).target()


LOW = Limits(saved_bytes=1 << 40, saving_bytes=1, saving_share=0)


def noisy(x: Tensor) -> Tensor:
    return torch.randn_like(x) * x.exp()


def test_random_numbers_inside_a_checkpoint_are_kept_and_told() -> None:
    x = torch.randn(8, 8, requires_grad=True)
    target = target_of(lambda x: checkpoint(noisy, x.sin(), use_reentrant=False).sum(), x)
    assert [(entry.code, entry.message) for entry in found(target, LOW)] == [
        (
            "AL305",
            (
                "`torch.randn_like(x)` is saved for the backward, 256 B, despite an activation checkpoint,"
                " which would recompute it: recomputing it would give other random numbers"
            ),
        )
    ]


def test_a_checkpoint_that_is_followed_has_no_finding() -> None:
    x = torch.randn(8, 8, requires_grad=True)
    target = target_of(lambda x: checkpoint(lambda x: x.exp().tanh(), x.sin(), use_reentrant=False).sum(), x)
    assert found(target, LOW) == []


def test_dropout_has_no_finding_under_any_policy() -> None:
    x = torch.randn(8, 8, requires_grad=True)
    for policy in ("min-cut", "default"):
        target = target_of(lambda x: torch.nn.functional.dropout(x.exp(), 0.1).sin(), x, policy=policy)
        assert found(target, LOW) == []


@pytest.mark.rotates
def test_a_budget_of_the_example_is_told_exactly_when_more_saved_needs_less() -> None:
    spec = importlib.util.spec_from_file_location("train_gpt", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tokens = torch.zeros(16, 64, dtype=torch.long)
    target = target_of(module.GPT(module.Config(65)), tokens, tokens, policy="budget=0.3")
    assert target.partition is not None
    assert target.memory is not None
    totals = (target.partition.unbudgeted, *target.partition.larger_budgets)
    raised = any(each is not None and each.peak_bytes < target.memory.peak_bytes for each in totals)
    assert [entry.code for entry in found(target, LOW)] == (["AL306"] if raised else [])
