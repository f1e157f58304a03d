"""`aotlens fit --target` on a script that needs more than its limit."""

from pathlib import Path

import pytest

from aotlens.model.codec import loads
from aotlens.model.edits import edited
from tests.command import aotlens

SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 256), nn.Tanh(), nn.Linear(256, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.randn(512, 8), torch.randn(512, 8)
for step in range(9):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")
"""

WITHOUT_A_MODEL = """\
import torch

weight = torch.zeros(64, 64, requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)
x = torch.ones(8, 64)
for step in range(4):
    loss = (x @ weight).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
"""No edit lowers it much, so that the search is short."""


@pytest.mark.rotates
def test_edits_for_a_target_are_tested_and_written(tmp_path: Path) -> None:
    """It runs the script some 15 times, 4 s: that is what the command does."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    ended = aotlens("fit", "--target", "75%", "--fix", "--format", "json", "train.py", cwd=tmp_path)
    assert ended.code == 0, ended.err
    fit = loads(ended.out).fit
    assert fit is not None
    assert fit.plan is not None
    assert fit.plan.is_reached
    assert fit.plan.outcome in ("equal", "equal within tolerance")
    assert path.read_text() == edited(SCRIPT, fit.plan.edits) != SCRIPT
    assert f"-{SCRIPT.splitlines()[8]}" in ended.err.splitlines()
    again = loads(aotlens("fit", "--format", "json", "train.py", cwd=tmp_path).out).fit
    assert again is not None
    assert again.step_peak_bytes == fit.plan.peak_bytes <= 0.75 * fit.step_peak_bytes


@pytest.mark.rotates
def test_a_target_below_the_parameters_says_how_close_it_gets(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WITHOUT_A_MODEL)
    ended = aotlens("fit", "--target", "1KiB", "--fix", "train.py", cwd=tmp_path)
    assert ended.code == 1, ended.err
    assert "Target 1.0 KiB is not reached" in ended.out
    assert "the least that was found" in ended.out
    assert "  out of reach: " in ended.out
    assert "aotlens: nothing is written: the target is not reached; --target " in ended.err
    assert (tmp_path / "train.py").read_text() == WITHOUT_A_MODEL


def test_a_target_that_the_script_meets_needs_no_edits(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WITHOUT_A_MODEL)
    ended = aotlens("fit", "--target", "1GiB", "--fix", "train.py", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert ended.out.startswith("Target 1.0 GiB is reached without edits: ")
    assert "aotlens: nothing is written: Target 1.0 GiB is reached without edits" in ended.err


def test_edits_are_written_for_a_target_only(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ended = aotlens("fit", "--fix", "train.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "--fix writes the edits that reach a target: add --target 75%" in ended.err


def test_a_snapshot_has_no_other_target(tmp_path: Path) -> None:
    ended = aotlens("fit", "--target", "75%", "snapshot.pickle", "train.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "--target needs a script alone: aotlens fit --target … train.py" in ended.err


def test_a_target_that_is_no_size_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ended = aotlens("fit", "--target", "much", "train.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "'much' is neither a size (`24GiB`) nor a fraction of the peak (`75%`)" in ended.err
