"""The largest size that fits: the number in the script, the polynomials, and the runs that verify them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aotlens.errors import UserError
from aotlens.fit.capacity import gpu_fit
from aotlens.fit.job import FitJob
from aotlens.fit.largest.growth import growth_of
from aotlens.fit.largest.search import fit_largest
from aotlens.fit.largest.varied_size import find_size
from aotlens.model.fit import BatchFit, Fit, FitAllocation, FitMoment, KindGrowth
from aotlens.model.report import Report
from aotlens.session.why.observation import Observation
from aotlens.view.step_memory.largest import formula, largest_lines
from tests.command import aotlens

MIB = 1 << 20
SCRIPT = """import argparse
BATCH = 16
def main(steps=5, *, length: int = 7): ...
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=32)
é = loader(batch_size=8); other(batch_size=8)
BATCH_2 = 4 * BATCH
"""


@pytest.fixture
def job(tmp_path: Path) -> FitJob:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return FitJob(str(path), ("--depth=3", "--rows", "5"), gpu="t4")


@pytest.mark.parametrize(
    ("name", "value", "changed"),
    [
        ("BATCH", 16, "BATCH = 99"),
        ("steps", 5, "def main(steps=99, *, length: int = 7): ..."),
        ("length", 7, "def main(steps=5, *, length: int = 99): ..."),
    ],
)
def test_a_number_of_the_script_is_replaced(job: FitJob, name: str, value: int, changed: str) -> None:
    size = find_size(job, name)
    (text,) = size.job_with(job, 99).texts.values()
    assert size.value == value
    assert [line for line in text.splitlines() if line not in SCRIPT.splitlines()] == [changed]


@pytest.mark.parametrize(
    ("name", "value", "argv"),
    [
        ("--depth", 3, ("--depth=99", "--rows", "5")),
        ("--rows", 5, ("--depth=3", "--rows", "99")),
        ("--width", 32, ("--depth=3", "--rows", "5", "--width", "99")),
    ],
)
def test_an_option_of_the_script_is_replaced(
    job: FitJob, name: str, value: int, argv: tuple[str, ...]
) -> None:
    size = find_size(job, name)
    assert (size.value, size.job_with(job, 99).argv) == (value, argv)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("batch", "assigns no whole number to `batch`; it does to `BATCH`, `steps`, `length`"),
        ("batch_size", "at lines 6, 6: pass --largest batch_size@6"),
        ("BATCH_2", "assigns no whole number"),
        ("--height", "the value of --height is unknown"),
    ],
)
def test_a_name_without_one_number_is_an_error(job: FitJob, name: str, message: str) -> None:
    with pytest.raises(UserError, match="train.py" if "height" not in name else "height") as error:
        find_size(job, name)
    assert message in str(error.value)


def step(batch: int, extra_bytes: int = 0) -> Fit:
    """A step with 100 MiB of parameters, and per sample 3 MiB, of which 1 MiB is freed before the peak."""
    allocations = (
        FitAllocation(100 * MIB, "parameter", "setup", -1, None),
        FitAllocation(batch * MIB, "temporary", "forward", 0, 1),
        FitAllocation(2 * batch * MIB + extra_bytes, "saved activation", "forward", 2, 4),
        FitAllocation(batch * batch * 1024, "temporary", "backward", 3, 5),
        FitAllocation(7, "working memory", "backward", 6, 7),
    )
    peak_bytes = 100 * MIB + 2 * batch * MIB + extra_bytes + batch * batch * 1024
    fits = gpu_fit(allocations, "t4")
    return Fit(peak_bytes, FitMoment("backward"), allocations=allocations, fits=fits)


def observed(step_of: Callable[[int], Fit]) -> Callable[[FitJob], Observation]:
    """Runs without a script: the batch is the number in its text."""

    def observe(job: FitJob) -> Observation:
        text = job.texts.get(job.path) or SCRIPT
        fit = step_of(int(text.splitlines()[1].partition("= ")[2]))
        return Observation(0, "", None, Report("", "", "", (), (), fit=fit))

    return observe


def largest(job: FitJob, step_of: Callable[[int], Fit]) -> BatchFit:
    report = fit_largest(job, "BATCH", observed(step_of)).report
    assert report is not None
    assert report.fit is not None
    assert report.fit.batch is not None
    return report.fit.batch


def test_polynomials_reproduce_other_sizes() -> None:
    growth = growth_of((1, 2, 3), [step(1), step(2), step(3)])
    assert growth is not None
    assert [each.bytes for each in growth.at(1000)] == [each.bytes for each in step(1000).allocations[:-1]]
    assert growth.kinds_at_peak(1000) == (
        KindGrowth("saved activation", 0, 2 * MIB),
        KindGrowth("temporary", 0, 0, 1024),
        KindGrowth("parameter", 100 * MIB, 0),
    )


def test_steps_that_allocate_in_another_order_have_no_polynomials() -> None:
    other = replace(step(2), allocations=step(2).allocations[1:])
    assert growth_of((1, 2, 3), [step(1), other, step(3)]) is None


def test_the_largest_size_fits_and_the_next_does_not(job: FitJob) -> None:
    result = largest(job, step)
    assert result.largest is not None
    fits = [gpu_fit(step(result.largest + more).allocations, "t4").ok for more in (0, 1)]
    assert (fits, result.is_verified, result.error_bytes) == ([True, False], True, 0)
    assert [peak.batch for peak in result.peaks] == [16, 32, 48, result.largest, result.largest + 1]
    assert formula(result) == "100.0 MiB + 2.0 MiB per sample + 1.0 KiB per sample squared"


def test_runs_that_contradict_the_polynomials_are_taken_into_account(job: FitJob) -> None:
    """From 1000 samples on, each step needs 1 GiB more."""
    result = largest(job, lambda batch: step(batch, (1 << 30) if batch > 1000 else 0))
    assert result.is_verified
    assert len(result.peaks) > 5  # the first computation does not know of it


def test_a_size_without_influence_is_an_error(job: FitJob) -> None:
    with pytest.raises(UserError, match="does not grow with `BATCH`"):
        largest(job, lambda batch: step(4))


def test_not_even_one_fits(job: FitJob) -> None:
    result = largest(job, lambda batch: step(batch, 20 << 30))
    assert result.largest == 0
    assert next(iter(largest_lines(result))) == "No BATCH fits T4: not even 1"


TRAINING = """
import torch
layer = torch.nn.Linear(1024, 1024)
update = torch.optim.SGD(layer.parameters(), 0.1)
def train(batch_size=64):
    for _ in range(5):
        layer(torch.ones(batch_size, 1024, 1024)).relu().sum().backward()
        update.step()
        update.zero_grad()
train()
"""


@pytest.mark.rotates
def test_the_command_prints_the_formula(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    ended = aotlens("fit", "--gpu", "t4", "--largest", "batch_size", "train.py", cwd=tmp_path)
    assert ended.code == 0
    assert "Largest batch_size that fits T4: " in ended.out
    assert "MiB per sample at the peak, of which" in ended.out
    assert "runs at this size and the next confirm it" in ended.out
    assert ended.err.count("aotlens: running the script with batch_size = ") == 5
    without_gpu = aotlens("fit", "--largest", "batch_size", "train.py", cwd=tmp_path)
    assert (without_gpu.code, "--largest needs a GPU" in without_gpu.err) == (2, True)
