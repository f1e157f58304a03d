"""The last result of each script on disk: returned while its files are unchanged."""

import os
from pathlib import Path

import pytest

from aotlens.disk_cache import FOLDER_VARIABLE
from aotlens.worker.fit_results import FitResults, FitRun, open_fit_results
from tests.fit.sample import sample_fit_report


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


def test_the_last_result_replaces_the_one_before(tmp_path: Path, results: FitResults) -> None:
    path = script(tmp_path)
    for gpu in ("t4", None):
        results.add(FitRun(str(path), (), gpu, (str(path),), 2000.0), sample_fit_report())
    assert results.find(str(path)) == (sample_fit_report(), None)


def test_a_file_that_changed_during_the_run_is_not_trusted(tmp_path: Path, results: FitResults) -> None:
    path = script(tmp_path)
    results.add(FitRun(str(path), (), None, (str(path),), 500.0), sample_fit_report())
    assert results.find(str(path)) is None
