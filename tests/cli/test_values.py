"""What an option cannot take is told while the command line is parsed."""

import argparse
from pathlib import Path

import pytest

from aotlens.cli.app import run_command
from aotlens.cli.options import count, output_file, seconds


def test_what_is_taken(tmp_path: Path) -> None:
    assert (seconds("0.5"), count("2")) == (0.5, 2)
    assert output_file(str(tmp_path / "report.json")) == str(tmp_path / "report.json")


@pytest.mark.parametrize("text", ["0", "-3", "nan", "inf", "soon"])
def test_no_limit_of_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not a number of seconds above 0"):
        seconds(text)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "two"])
def test_no_count(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not a whole number above 0"):
        count(text)


def test_a_file_that_cannot_be_written_is_told_before_anything_is_traced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.py").write_text("")
    with pytest.raises(SystemExit) as ended:
        run_command(["inspect", str(tmp_path / "script.py"), "-o", str(tmp_path / "no" / "report.txt")])
    assert ended.value.code == 2
    assert f"there is no folder {tmp_path / 'no'}" in capsys.readouterr().err.replace("\n", " ")
    with pytest.raises(argparse.ArgumentTypeError, match="is a folder; name a file"):
        output_file(str(tmp_path))
