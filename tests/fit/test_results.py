"""The last result of each script on disk: returned while its files are unchanged."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from aotlens.disk_cache import FOLDER_VARIABLE
from aotlens.model.fit import Distribution, FitAllocation, FitLine
from aotlens.model.source import Span
from aotlens.worker.fit_results import FitResults, FitRun, open_fit_results, with_files
from tests.fit.sample import sample_fit, sample_fit_report


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FitResults:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    opened = open_fit_results()
    assert opened is not None
    return opened


def script(folder: Path) -> Path:
    """A script that is older than any run of it."""
    path = folder / "train.py"
    path.write_text("import model\n")
    os.utime(path, (1000, 1000))
    return path


def test_a_result_is_returned_until_a_file_changes(tmp_path: Path, results: FitResults) -> None:
    path = script(tmp_path)
    results.add(FitRun(str(path), ("--small",), "t4", (str(path),), 2000.0), sample_fit_report())
    assert results.find(str(path), ("--small",)) == (sample_fit_report(), "t4")
    assert results.find(str(path)) is None
    path.write_text("import model, sys\n")
    assert results.find(str(path), ("--small",)) is None


def test_allocations_are_not_stored_and_paths_are_absolute(
    tmp_path: Path, results: FitResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(tmp_path)
    monkeypatch.chdir(tmp_path)
    spans = (Span("train.py", 1, 0, 1, 6), Span("/elsewhere/model.py", 1, 0, 1, 6))
    fit = replace(
        sample_fit(),
        by_line=tuple(FitLine(span, 1) for span in spans),
        allocations=(FitAllocation(1, "parameter", "setup", -1, None),),
    )
    results.add(FitRun("train.py", (), None, (str(path),), 2000.0), sample_fit_report(fit))
    stored = results.find(str(path))
    assert stored is not None
    assert stored[0].fit is not None
    files = [row.span.file for row in stored[0].fit.by_line if row.span is not None]
    assert files == [str(path), "/elsewhere/model.py"]
    assert stored[0].fit.allocations == ()
    relative = with_files(stored[0], os.path.basename).fit
    assert relative is not None
    assert relative.by_line[0].span == spans[0]


def test_the_last_result_replaces_the_one_before(tmp_path: Path, results: FitResults) -> None:
    path = script(tmp_path)
    for gpu in ("t4", None):
        results.add(FitRun(str(path), (), gpu, (str(path),), 2000.0), sample_fit_report())
    assert results.find(str(path)) == (sample_fit_report(), None)


def test_single_ranks_do_not_replace_a_run_on_one_device(tmp_path: Path, results: FitResults) -> None:
    path, plain = script(tmp_path), sample_fit_report()
    ranks = sample_fit_report(replace(sample_fit(), distribution=Distribution(8, ())))
    on_ranks = FitRun(str(path), (), "h100", (str(path),), 2000.0, is_distributed=True)
    results.add(on_ranks, ranks)
    assert results.find(str(path)) == (ranks, "h100")
    results.add(FitRun(str(path), (), "t4", (str(path),), 2000.0), plain)
    results.add(on_ranks, ranks)
    assert results.find(str(path)) == (plain, "t4")


def test_a_file_that_changed_during_the_run_is_not_trusted(tmp_path: Path, results: FitResults) -> None:
    path = script(tmp_path)
    results.add(FitRun(str(path), (), None, (str(path),), 500.0), sample_fit_report())
    assert results.find(str(path)) is None
