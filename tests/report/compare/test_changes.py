"""The difference of two stages, on a report made by hand and on a real one."""

import pytest

from aotlens.errors import UserError
from aotlens.model.report import Target
from aotlens.model.stage_changes import StageDifference, parse_range, stage_difference
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.render.text.stages import stage_difference_lines
from tests.engine import golden_functions


def real_target() -> Target:
    import torch

    arguments = (torch.ones(4, requires_grad=True), torch.ones(4))
    return compile_direct(
        golden_functions.running_total, arguments, {}, CompileOptions(backend="eager")
    ).target()


def told(difference: StageDifference | None) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    assert difference is not None
    return [
        (change.kind, tuple(n.target for n in change.before), tuple(n.target for n in change.after))
        for change in difference.changes
    ]


def test_a_write_becomes_a_new_value() -> None:
    assert told(stage_difference(real_target(), "captured", "functional")) == [
        ("removed", ("aten.detach.default",), ()),
        ("replaced", ("aten.add_.Tensor",), ("aten.add.Tensor",)),
        ("rewired", ("aten.mul.Tensor",), ("aten.mul.Tensor",)),
    ]


def test_the_backward_is_added() -> None:
    kinds = {kind for kind, _, _ in told(stage_difference(real_target(), "functional", "joint"))}
    assert kinds == {"added"}


def test_a_stage_that_changes_nothing_has_no_difference() -> None:
    for one, other in (("captured", "desugared"), ("functional", "decomposed")):
        assert told(stage_difference(real_target(), one, other)) == []


def test_siblings_are_compared_over_their_parent() -> None:
    difference = stage_difference(real_target(), "forward", "backward")
    assert difference is not None
    assert difference.kept == 0 or difference.changes


def test_the_wrapper_adds_its_steps() -> None:
    target = real_target()
    difference = stage_difference(target, "forward", "wrapper")
    assert difference is not None
    assert target.wrapper is not None
    applied = [step.name for step in target.wrapper.steps if step.applied]
    assert [change.after[0].name for change in difference.changes] == applied


def test_lines_name_the_source_line() -> None:
    difference = stage_difference(real_target(), "captured", "functional")
    assert difference is not None
    lines = [line.plain for line in stage_difference_lines(difference)]
    assert lines[0] == "captured → functional  1 replaced, 1 removed, 1 reading another value, 4 kept"
    assert lines[1].endswith("golden_functions.py:8: total.add_(x.detach())")


def test_half_a_range_is_an_error() -> None:
    assert parse_range("joint") is None
    assert parse_range("captured..joint") == ("captured", "joint")
    with pytest.raises(UserError, match="half a range"):
        parse_range("captured..")
