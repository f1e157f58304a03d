"""Held memory of a snapshot, matched with the prediction for the script."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from aotlens.fit.failure_match import match_failure
from aotlens.fit.snapshot import read_snapshot
from aotlens.model.edits import edited
from aotlens.model.fit import Fit, FitAllocation, FitMoment, FitPlan, FitPoint, GpuFit
from aotlens.model.memory_snapshot import FailureMatch
from aotlens.model.source import Span
from aotlens.render.html.build import html_page
from aotlens.view.step_memory.failures import avoided_lines, match_lines
from aotlens.worker.fit_results import open_fit_results
from tests.command import aotlens, forked
from tests.fit.snapshot_files import STACKS, block, failed_step, frame, out_of_memory, segment, write

MIB = 1 << 20
CALL, INSIDE = Span("model.py", 40, 8, 42, 20), Span("model.py", 50, 4, 50, 9)
"""The failing expression, over three lines; a line inside of compiled code."""
MADE = Span("train.py", 9, 4, 9, 20)


def prediction(graph_mib: int = 40) -> Fit:
    """The step of `failed_step`, as predicted: at the failing line no backward has run in this step."""
    allocations = (
        FitAllocation(24 * MIB, "parameter", "setup", -1, None, span=MADE),
        FitAllocation(48 * MIB, "optimizer state", "setup", -1, None, state="exp_avg"),
        FitAllocation(3 * MIB, "gradient", "setup", -1, None),
        FitAllocation(10 * MIB, "other", "setup", -1, None),
        FitAllocation(graph_mib * MIB, "saved activation", "forward", 0, 8, span=INSIDE),
        FitAllocation(6 * MIB - 100, "saved activation", "forward", 1, 9, span=CALL),
        FitAllocation(5 * MIB, "saved activation", "forward", 2, 7, span=CALL),
        FitAllocation(99 * MIB, "temporary", "backward", 5, 6, span=CALL),
    )
    curve = (
        FitPoint(0, 125 * MIB, "forward", span=INSIDE),
        FitPoint(1, 131 * MIB, "forward", span=CALL),
        FitPoint(2, 136 * MIB, "forward", span=CALL),
        FitPoint(5, 230 * MIB, "backward"),
    )
    return Fit(230 * MIB, FitMoment("backward", moment=5), curve=curve, allocations=allocations)


def matched(folder: Path, fit: Fit) -> FailureMatch:
    (snapshot,) = read_snapshot(str(write(folder / "step.pickle", failed_step())))
    return match_failure(snapshot, fit, "train.py")


def test_each_phase_is_matched_by_what_its_stacks_show(tmp_path: Path) -> None:
    match = matched(tmp_path, prediction())
    assert (match.when, match.predicted_at.span) == ("when the failing line runs", CALL)
    rows = {
        row.holder.phase: (row.holder.size_bytes // MIB, row.predicted_bytes // MIB) for row in match.holders
    }
    assert rows == {
        "optimizer": (48, 48),
        "compiled code": (40, 40),
        "parameters": (24, 24),
        "not recorded": (10, 10),
        "forward": (6, 6),
        "backward": (3, 3),
    }
    assert match.unexplained == ()
    assert match.not_held == ()
    assert list(match_lines(match))[-1] == "The prediction explains what was held, to 1% of it for each line"


def test_what_is_held_without_a_prediction_is_named(tmp_path: Path) -> None:
    lines = "\n".join(match_lines(matched(tmp_path, prediction(graph_mib=30))))
    assert "131.0 MiB held, 121.0 MiB predicted" in lines
    assert "Unexplained: 10.0 MiB, 8% of what was held" in lines
    assert "10.0 MiB  compiled code  /job/model.py:41 in forward: more than predicted" in lines


def test_a_prediction_is_not_counted_twice(tmp_path: Path) -> None:
    fit = prediction()
    match = matched(tmp_path, fit)
    predicted = sum(row.predicted_bytes for row in match.holders) + sum(size for _, size in match.not_held)
    assert predicted == match.predicted_bytes


def test_without_the_failing_line_the_peak_is_compared(tmp_path: Path) -> None:
    fit = prediction()
    elsewhere = tuple(replace(point, span=None) for point in fit.curve)
    match = matched(tmp_path, replace(fit, curve=elsewhere))
    assert (match.when, match.predicted_at) == ("at its peak", fit.at)
    assert "at its peak: backward" in next(match_lines(match))


def test_a_failure_in_the_backward_is_compared_with_its_highest_point(tmp_path: Path) -> None:
    data = failed_step()
    data["device_traces"] = [[out_of_memory(5 * MIB, MIB, STACKS["backward"])]]
    (snapshot,) = read_snapshot(str(write(tmp_path / "step.pickle", data)))
    match = match_failure(snapshot, prediction(), "train.py")
    assert match.when == "at the highest point of the backward, where it failed"
    assert match.predicted_at.moment == 5
    (backward,) = (row for row in match.holders if row.holder.phase == "backward")
    assert dict(backward.kinds) == {"gradient": 3 * MIB}


def avoided(match: FailureMatch) -> list[str]:
    return list(avoided_lines(match))


def test_edits_are_named_where_the_step_needs_more_than_is_left(tmp_path: Path) -> None:
    fit = replace(prediction(graph_mib=30), fits=GpuFit("T4", 900 * MIB, 134 * MIB, True))
    match = matched(tmp_path, fit)
    assert (match.failed_bytes, match.capacity_bytes, match.step_bytes) == (5 * MIB, 138 * MIB, 134 * MIB)
    assert (match.unexplained_bytes, match.target_bytes) == (10 * MIB, 128 * MIB)
    need = "the step reserves 134.0 MiB, 128.0 MiB of 138.0 MiB are left beside the unexplained 10.0 MiB"
    released = "The step also fits if what is unexplained is released"
    plan = FitPlan(128 * MIB, 120 * MIB, ("Delete `x`",), outcome="equal", compared="2 parameters")
    assert avoided(replace(match, avoided_by=plan)) == [
        f"The failure would have been avoided by these edits: {need}",
        "  - Delete `x`",
        "  with them the step reserves 120.0 MiB: no extra work; training equal: 2 parameters",
        released,
    ]
    close = replace(plan, peak_bytes=130 * MIB)
    assert avoided(replace(match, avoided_by=close))[0] == (
        f"No tested edits would have avoided the failure: {need}; these come closest"
    )
    none = FitPlan(128 * MIB, 134 * MIB)
    assert avoided(replace(match, avoided_by=none)) == [
        f"No tested edit would have avoided the failure: {need}",
        released,
    ]


def test_a_step_that_fits_needs_no_edits(tmp_path: Path) -> None:
    fit = replace(prediction(), fits=GpuFit("T4", 900 * MIB, 100 * MIB, True))
    assert avoided(matched(tmp_path, fit)) == [
        "The predicted step fits: it reserves 100.0 MiB, and torch could reserve 138.0 MiB"
    ]
    data = failed_step()
    data["device_traces"] = [[]]
    (snapshot,) = read_snapshot(str(write(tmp_path / "step.pickle", data)))
    assert avoided(match_failure(snapshot, fit, "train.py")) == []


SCRIPT = """\
import torch
layer = torch.nn.Linear(1024, 1024, bias=False).to("cuda")
optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
extra = []
for step in range(9):
    hidden = layer(torch.ones(2048, 1024, device="cuda"))
    hidden.relu().sum().backward()
    optimizer.step()
"""


@pytest.fixture
def no_workspaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshots that are made here have none."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", "0")


@pytest.mark.rotates
@pytest.mark.usefixtures("no_workspaces")
def test_the_command_compares_a_snapshot_with_its_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    forward = [
        frame("/site-packages/torch/nn/modules/linear.py", 5, "forward"),
        frame("/job/train.py", 6, "<module>"),
    ]
    held = (
        block(4 * MIB, [STACKS["parameters"][0], frame("/job/train.py", 2, "<module>")]),
        block(4 * MIB, STACKS["optimizer"]),
        block(8 * MIB, forward),
        block(8 * MIB, forward),
        block(64 * MIB, [frame("/job/train.py", 4, "<module>")]),
    )
    snapshot = {"segments": [segment(*held)], "device_traces": [[out_of_memory(8 * MIB, 0, forward)]]}
    path = write(tmp_path / "oom.pickle", snapshot)
    ended = aotlens("fit", path, "train.py", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert (
        "Compared with the prediction for train.py when the failing line runs: forward at train.py:6"
        in ended.out
    )
    assert "Unexplained: 64.0 MiB" in ended.out
    assert "64.0 MiB  forward  /job/train.py:4 in <module>: nothing is predicted for it" in ended.out
    found = json.loads(aotlens("fit", "--format", "json", path, "train.py", cwd=tmp_path).out)
    assert found["schema"] == "aotlens.snapshot/1"
    lines = {
        row["holder"]["line"]: (row["holder"]["size_bytes"], row["predicted_bytes"])
        for row in found["matches"][0]["holders"]
    }
    assert lines[6] == (16 * MIB, 16 * MIB)
    assert lines[2] == (4 * MIB, 4 * MIB)
    assert lines[4] == (64 * MIB, 0)


WIDE = """\
import torch

layers = [torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)]
model = torch.nn.Sequential(*layers).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x = torch.randn(4096, 512, device="cuda")
for step in range(9):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.rotates
@pytest.mark.usefixtures("no_workspaces")
def test_the_edits_that_would_have_avoided_a_failure_are_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "train.py").write_text(WIDE)
    line = [frame("/job/train.py", 8, "<module>")]
    held = (
        block(8 * MIB, [frame("/job/train.py", 4, "<module>")]),
        block(8 * MIB, [frame("/job/train.py", 6, "<module>")]),
        block(72 * MIB, line),
    )
    snapshot = {"segments": [segment(*held)], "device_traces": [[out_of_memory(8 * MIB, 2 * MIB, line)]]}
    path = write(tmp_path / "oom.pickle", snapshot)
    ended = aotlens("fit", path, "train.py", cwd=tmp_path)
    results = open_fit_results()
    assert results is not None
    stored = results.find(str(tmp_path / "train.py"))
    assert stored is not None, ended.err
    (match,) = stored[0].failure_matches
    plan = match.avoided_by
    assert plan is not None
    assert (match.failed_bytes, match.capacity_bytes) == (8 * MIB, 90 * MIB)
    assert plan.peak_bytes <= plan.target_bytes <= 90 * MIB < match.step_bytes
    assert plan.outcome in ("equal", "equal within tolerance")
    assert "The failure would have been avoided by these edits" in ended.out
    assert [title for title in plan.titles if f"  - {title}" not in ended.out] == []
    added = [line for line in edited(WIDE, plan.edits).splitlines() if line not in WIDE.splitlines()]
    assert added
    assert [line for line in added if f"+{line}" not in ended.out.splitlines()] == []
    page = html_page(stored[0], "oom.pickle")
    assert "The failure would have been avoided by" in page
    assert plan.titles[0] in page


PREDICTED = """
import pickle, sys
from aotlens.fit.child import fit_script
from aotlens.fit.job import FitJob
fit = fit_script(FitJob(sys.argv[1], gpu="h200"))[1].fit
with open(sys.argv[2], "wb") as file:
    pickle.dump(fit, file)
"""
"""The prediction alone: the command would also search for edits that fit."""


def test_a_failure_on_a_real_gpu_is_predicted_to_the_byte(tmp_path: Path) -> None:
    """Five of twelve layers had run: the failing line is compared in the run that it failed in."""
    folder = Path(__file__).parent / "snapshots"
    (snapshot,) = read_snapshot(str(folder / "h200-oom.pickle"))
    ended = forked("-c", PREDICTED, folder / "train_oom.py", tmp_path / "fit.pickle")
    assert ended.code == 0, ended.err
    fit: Fit = pickle.loads((tmp_path / "fit.pickle").read_bytes())
    match = match_failure(snapshot, fit, "train_oom.py")
    assert match.when == "when the failing line runs"
    assert [row.predicted_bytes for row in match.holders] == [row.holder.size_bytes for row in match.holders]
    assert sum(row.predicted_bytes for row in match.holders) == match.held_bytes
    assert match.not_held[0][0] == "optimizer state"  # the first step has none yet
