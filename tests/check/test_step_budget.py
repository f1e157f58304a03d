"""`aotlens check` and the budget `step-peak`: a script is run only where it has one."""

import os
from pathlib import Path

import pytest

from aotlens.check.steps import find_step_files
from aotlens.errors import UserError
from tests.command import aotlens

TRAIN = """\
import torch
print("running", __name__)
layer = torch.nn.Linear(1024, 1024, bias=False)
update = torch.optim.SGD(layer.parameters(), 0.1)
for number in range(50):
    layer(torch.ones(8, 1024)).sum().backward()
    update.step()
    update.zero_grad()
"""
BUDGET = '[tool.aotlens.per-file."train.py"]\nstep_peak = "{limit}"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "model.py").write_text("import torch\n")
    return tmp_path


def test_only_scripts_with_a_budget_and_a_step_are_measured(folder: Path) -> None:
    assert find_step_files([str(folder)]) == ()
    (folder / "pyproject.toml").write_text('[tool.aotlens]\nstep-peak = "1 GiB"\n')
    other = folder / "other"
    other.mkdir()
    (other / "pyproject.toml").write_text('[tool.aotlens]\nstep_peak = "1 GiB"\n')
    (other / "train.py").write_text(TRAIN)
    (other / "model.py").write_text("import torch\n")
    (file,) = find_step_files([str(other)])
    assert (file.path, file.settings.budget_of(file.path).step_peak) == (str(other / "train.py"), 1 << 30)


def test_a_limit_that_is_no_size_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "pyproject.toml").write_text("[tool.aotlens]\nstep_peak = -1\n")
    with pytest.raises(UserError, match="step-peak takes bytes, as 1048576"):
        find_step_files([str(tmp_path)])


@pytest.mark.rotates
def test_a_step_over_its_budget_fails_and_its_result_is_stored(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pyproject.toml").write_text(BUDGET.format(limit="6 MiB"))
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    for file in folder.iterdir():
        os.utime(file, (1000, 1000))
    ended = aotlens("check", "--format", "github", ".", cwd=folder)
    assert ended.code == 1
    assert "AL807" in ended.out
    assert "the step needs 8.1 MiB at its peak, over its budget of 6.0 MiB (step-peak)" in ended.out
    assert "running __main__" in ended.err
    again = aotlens("check", "--format", "github", ".", cwd=folder)
    assert (again.code, again.out) == (1, ended.out)
    assert "running" not in again.err


@pytest.mark.rotates
def test_fit_applies_the_budget_too(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(BUDGET.format(limit="6 MiB"))
    ended = aotlens("fit", "train.py", cwd=folder)
    assert ended.code == 1
    assert "aotlens: AL807: the step needs 8.1 MiB at its peak" in ended.err
