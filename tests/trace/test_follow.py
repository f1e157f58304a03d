"""Logs that are still written."""

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aotlens.model.log import ListedTarget, Log
from aotlens.trace.build import build_report
from aotlens.trace.logs.follow import Follower, new_lines
from aotlens.trace.logs.log_file import LogFile
from tests.command import environment

(LOG,) = (Path(__file__).parent / "logs" / "gpt-aot_eager").glob("*.gz")


def _halves(kind: str) -> tuple[bytes, bytes]:
    """The log before and from its first record of that kind."""
    text = gzip.decompress(LOG.read_bytes())
    position = text.rindex(b"\nV", 0, text.index(f'{{"{kind}"'.encode())) + 1
    return text[:position], text[position:]


def _append(path: Path, text: bytes) -> None:
    with open(path, "ab") as file:
        file.write(text)


def test_a_log_is_read_on_and_what_is_new_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, rest = _halves("aot_backward_graph")
    path = tmp_path / "dedicated_log_torch_trace_a.log"
    path.write_bytes(first)
    follower = Follower(tmp_path)
    before = build_report(follower.trace, "")
    assert follower.read_on() is None
    _append(path, rest)
    read: list[int] = []
    blocks = LogFile.blocks

    def counted(log: LogFile) -> Iterator[bytes]:
        for block in blocks(log):
            read.append(len(block))
            yield block

    monkeypatch.setattr(LogFile, "blocks", counted)
    trace = follower.read_on()
    assert trace is not None
    assert sum(read) < len(rest) + 100_000  # the last record of the first half is read again, and no more
    now = build_report(trace, "")
    assert now.targets[0].partition is not None
    assert [line.split()[:3] for line in new_lines(before, now)] == [["compiled", "0/0", "forward"]]
    assert list(new_lines(now, now)) == []


def test_a_target_that_was_only_listed_is_not_new_once_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "dedicated_log_torch_trace_a.log").write_bytes(gzip.decompress(LOG.read_bytes()))
    report = build_report(Follower(tmp_path).trace, "")
    (target,) = report.targets
    read = replace(report, targets=(replace(target, name=f"{target.name} (ranks 0, 1)"),))
    row = ListedTarget(target.qualname, "0/0", "training", target.span, 1_000)
    listed = replace(report, targets=(), log=Log(str(tmp_path), (row,), 1))
    assert list(new_lines(listed, read)) == []
    assert list(new_lines(read, listed)) == []
    assert len(list(new_lines(replace(report, targets=()), read))) == 1


def test_the_table_of_file_names_stays(tmp_path: Path) -> None:
    first, rest = _halves("dynamo_start")
    path = tmp_path / "a.log"
    path.write_bytes(first)
    follower = Follower(path)
    _append(path, rest)
    trace = follower.read_on()
    assert trace is not None
    frame = trace.processes[0].compilations[0].records("dynamo_start")[0]
    stack = trace.header(frame)
    assert isinstance(stack, dict)
    names = [entry.file for entry in trace.processes[0].stack(stack["stack"])]
    assert "/home/ada/train/gpt.py" in names


def test_a_log_that_appears_in_the_folder_is_opened(tmp_path: Path) -> None:
    text = gzip.decompress(LOG.read_bytes())
    (tmp_path / "a.log").write_bytes(text)
    follower = Follower(tmp_path)
    (tmp_path / "b.log").write_bytes(text)
    trace = follower.read_on()
    assert trace is not None
    assert len(trace.files) == 2


def test_a_log_that_is_written_anew_is_opened_again(tmp_path: Path) -> None:
    first, rest = _halves("aot_joint_graph")
    path = tmp_path / "a.log"
    path.write_bytes(first + rest)
    follower = Follower(path)
    path.write_bytes(first)
    trace = follower.read_on()
    assert trace is not None
    assert trace.processes[0].compilations[0].last("aot_joint_graph") is None


@pytest.mark.rotates
def test_inspect_prints_each_target_as_it_comes_until_ctrl_c(tmp_path: Path) -> None:
    """A process of its own: Ctrl-C must not reach the one that runs the tests."""
    first, rest = _halves("aot_backward_graph")
    path = tmp_path / "a.log"
    path.write_bytes(first)
    words = [sys.executable, "-m", "aotlens", "inspect", "--watch", str(path)]
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("compiled    0/0 forward  /home/ada/train/gpt.py:46")
        _append(path, rest)
        assert "saves 1000.0 KiB" in process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        assert process.stdout.read() == ""
    assert process.returncode == 0
