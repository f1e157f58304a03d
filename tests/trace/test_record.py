"""`aotlens record`: the command runs as by itself, and what torch logged stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from aotlens.trace.logs.recording import fresh_folder, record
from tests.command import ROOT, aotlens, environment

PROGRAMS = Path(__file__).parent / "programs"
WRITES_A_LOG = (
    "echo 'V1123 07:33:04.388000 1 torch/a.py:1] {}' > $TORCH_TRACE/dedicated_log_torch_trace_a.log"
)


def test_the_command_has_torchs_variables_and_its_exit_code_is_passed_on(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    ended = aotlens(
        "record",
        "--no-report",
        "-o",
        folder,
        "--",
        "sh",
        "-c",
        'echo "$TORCH_TRACE $INDUCTOR_PROVENANCE"; exit 7',
    )
    assert (ended.code, ended.out) == (7, f"{folder} 1\n")
    assert ended.err.startswith("aotlens: nothing was compiled")
    assert not folder.exists()


def test_a_log_stays_and_its_folder_is_named(tmp_path: Path) -> None:
    ended = aotlens("record", "--no-report", "--", "sh", "-c", WRITES_A_LOG, cwd=tmp_path)
    (folder,) = tmp_path.iterdir()
    assert ended.code == 0
    assert ended.err == f"aotlens: 1 log in {folder.name}; `aotlens tui {folder.name}` opens it\n"
    assert [log.name for log in folder.iterdir()] == ["dedicated_log_torch_trace_a.log"]


def test_logs_of_an_earlier_run_are_not_mixed_with_new_ones(tmp_path: Path) -> None:
    words = ("record", "--no-report", "-o", tmp_path, "--", "sh", "-c", WRITES_A_LOG)
    assert aotlens(*words).code == 0
    again = aotlens(*words)
    assert again.code == 2
    assert "has the logs of an earlier run" in again.err


def test_a_command_that_does_not_exist_leaves_no_folder(tmp_path: Path) -> None:
    ended = aotlens("record", "no-such-command", cwd=tmp_path)
    assert ended.code == 2
    assert "cannot start `no-such-command`: No such file or directory" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_within_one_second_has_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = fresh_folder(tmp_path)
    folder.mkdir()
    assert fresh_folder(tmp_path) != folder


def test_a_command_that_a_signal_ends_has_the_shells_exit_code(tmp_path: Path) -> None:
    recorded = record(("sh", "-c", "kill -KILL $$"), tmp_path)
    assert recorded.exit_code == 128 + signal.SIGKILL


def test_a_signal_to_us_reaches_the_command_which_decides(tmp_path: Path) -> None:
    """A process of its own: the signal must not end the one that runs the tests."""
    script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    words = [sys.executable, "-m", "aotlens", "record", "--", "sh", "-c", script]
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.read() == "caught\n"
    assert process.returncode == 5


def test_standard_input_is_the_commands(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "aotlens", "record", "cat"]
    done = subprocess.run(
        words, input="text\n", cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "text\n"


def test_starting_a_command_loads_no_torch() -> None:
    code = "import sys, aotlens.cli.commands.record; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
