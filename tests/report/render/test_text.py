"""What `inspect` and `run` print, as goldens, and that it stays plain in a pipe."""

import ast
import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from aotlens.errors import UserError
from aotlens.model import Diagnostic, Report, Target
from aotlens.model.report import Verdict
from aotlens.render.text.closing import Closing, print_closing
from aotlens.render.text.layout import WIDTH
from aotlens.render.text.report import Shown, print_report, report_text
from tests.conftest import Golden
from tests.report.sample import sample_report, tensor, training_target

ROOT = Path(__file__).parents[3]
FULL = Shown(is_full=True)


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are shown relative to the current folder."""
    monkeypatch.chdir(ROOT)


def test_inspect(golden: Golden) -> None:
    golden("report/inspect.txt", report_text(sample_report(), Shown(wrapper_source=True, is_full=True)))


def test_inspect_on_two_screens(golden: Golden) -> None:
    golden("report/inspect_short.txt", report_text(sample_report()))


def test_inspect_one_stage(golden: Golden) -> None:
    golden("report/stage.txt", report_text(sample_report(), Shown(stage="captured")))


def test_inspect_wrapper_is_the_module_text() -> None:
    wrapper = training_target().wrapper
    assert wrapper is not None
    report = replace(sample_report(), targets=(training_target(),))
    assert report_text(report, Shown(stage="wrapper")) == wrapper.source


def test_unknown_stage_lists_the_known() -> None:
    with pytest.raises(UserError) as caught:
        report_text(sample_report(), Shown(stage="middle"))
    assert str(caught.value) == (
        "no stage 'middle'; this report has captured, functional, joint, forward, backward, inference, "
        "wrapper, kernels"
    )


def test_narrow(golden: Golden) -> None:
    golden("report/inspect_60.txt", report_text(sample_report(), FULL, width=60))


def test_layers_are_folded(golden: Golden) -> None:
    golden("report/layers.txt", report_text(Report("2.13.0", "3.11.2", "x", (_layered(12),)), FULL))


def test_folded_bytes_equal_unfolded() -> None:
    partition = _layered(12).partition
    assert partition is not None
    assert sum(value.bytes for value in partition.saved) == partition.saved_bytes


def test_script_failure(golden: Golden) -> None:
    found = Diagnostic("AL903", "error", "the script raised ValueError: no data", None)
    golden("report/failure.txt", report_text(Report("2.13.0", "3.11.2", "x", (), (found,))))


def _printed(console: Console) -> str:
    print_report(sample_report(), console)
    print_closing(Closing(sample_report().targets, [Verdict("equal", "1 value")]), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_pipe_gets_plain_text() -> None:
    text = _printed(Console(file=io.StringIO()))
    assert "\x1b" not in text
    assert text.startswith(report_text(sample_report()))


def test_a_terminal_gets_colour_and_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {
        "TERM": "xterm-256color"
    }
    coloured = _printed(Console(file=io.StringIO(), force_terminal=True, width=WIDTH, _environ=environment))
    assert "\x1b[33m" in coloured
    plain = Console(
        file=io.StringIO(), force_terminal=True, width=WIDTH, _environ=environment | {"NO_COLOR": "1"}
    )
    assert "\x1b[33m" not in _printed(plain)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_but_source_is_wider_than_the_page(width: int) -> None:
    """Source excerpts, places and names are never cut; everything else wraps."""
    for line in report_text(sample_report(), width=width).splitlines():
        assert len(line) <= max(width, 100), line


def _layered(count: int) -> Target:
    """The training target with parameters and saved values of `count` equal layers, one of them different."""
    base = training_target()
    assert base.partition is not None
    saved = base.partition.saved[0]
    layers = tuple(replace(saved, name=f"h.{layer}.act", node=f"gelu_{layer}") for layer in range(count))
    odd = replace(layers[3], tensor=tensor("f32[16, 64]"), bytes=4096)
    layers = (*layers[:3], odd, *layers[4:])
    weights = tuple(
        replace(base.inputs[0], name=f"h.{layer}.up.weight", fqn=f"h.{layer}.up.weight", index=layer)
        for layer in range(count)
    )
    total = sum(value.bytes for value in layers)
    partition = replace(base.partition, saved=layers, recomputed=(), saved_bytes=total)
    return replace(base, inputs=weights, outputs=(), partition=partition, diagnostics=(), wrapper=None)


def test_a_program_s_text_is_never_broken() -> None:
    text = report_text(sample_report(), Shown(stage="forward"), width=60)
    ast.parse(text)
    assert max(map(len, text.splitlines())) > 60  # a comment of a shape, or a long call


def test_a_place_of_several_operators_is_told_once() -> None:
    target = training_target()
    assert target.wrapper is not None
    step = next(step for step in target.wrapper.steps if step.sites)
    again = tuple(replace(step.sites[0], op=op) for op in ("aten.add_", "aten.mul_"))
    steps = tuple(replace(one, sites=again) if one is step else one for one in target.wrapper.steps)
    inputs = tuple(replace(one, sites=()) for one in target.inputs)
    target = replace(target, inputs=inputs, outputs=(), wrapper=replace(target.wrapper, steps=steps))
    text = report_text(replace(sample_report(), targets=(target,)), FULL)
    wrapper = text[text.index("Wrapper") : text.index("not needed")]
    assert wrapper.count(step.sites[0].text) == 1
