"""A process is run to its end or its limit, and its lines come with the clocks that it noted."""

import os
import sys
import time
from pathlib import Path

import pytest

from corpus.process import run_process

OBSERVED = """
import os, time
with open(os.environ["CORPUS_CLOCKS"], "w") as clocks:
    for index in range(2):
        print("line", index)
        print(time.monotonic(), 0.5 + index, 0.25 + index, file=clocks)
"""


def test_lines_and_their_clocks(tmp_path: Path) -> None:
    ran = run_process([sys.executable, "-c", OBSERVED], os.environ, tmp_path, 60)
    assert (ran.exit_code, ran.timed_out, ran.stdout) == (0, False, ("line 0", "line 1"))
    assert [(line.tree_cpu_s, line.thread_cpu_s) for line in ran.lines] == [(0.5, 0.25), (1.5, 1.25)]
    assert 0 < ran.lines[0].wall_s <= ran.lines[1].wall_s <= ran.wall_s


def test_lines_that_were_printed_past_the_observer(tmp_path: Path) -> None:
    code = OBSERVED + "os.write(1, b'more\\n')"
    ran = run_process([sys.executable, "-c", code], os.environ, tmp_path, 60)
    assert sorted(ran.stdout) == ["line 0", "line 1", "more"]
    assert {line.wall_s for line in ran.lines} == {0.0}


def test_the_exit_code_and_stderr(tmp_path: Path) -> None:
    ran = run_process([sys.executable, "-c", "import sys; sys.exit('no')"], os.environ, tmp_path, 60)
    assert (ran.exit_code, ran.stdout, ran.stderr_tail) == (1, (), "no\n")


@pytest.mark.rotates
def test_a_process_that_exceeds_its_limit_ends_with_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\ntime.sleep(60)"
    )
    ran = run_process([sys.executable, "-c", code], os.environ, tmp_path, 2)
    assert (ran.exit_code, ran.timed_out) == (-9, True)
    deadline = time.monotonic() + 10
    while _runs(int(ran.stdout[0])) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(int(ran.stdout[0]))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
