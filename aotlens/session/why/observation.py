"""Run a script unchanged in a process of its own, and note what Dynamo does.

Invariant: the script gets its own backend, arguments, standard input and numbers; what it prints goes to
stderr at once, and its exit code is its own.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.model.codec import decode, decode_record, encode, encode_record
from aotlens.model.failure import Failure
from aotlens.model.report import Report

if TYPE_CHECKING:  # it imports torch, which only the child has loaded
    from aotlens.session.run import ScriptEnd

__all__ = ["Observation", "WhyJob", "observe_script", "save_observation"]

WHY_CHILD = "aotlens.session.why.child"
JOB, OBSERVED = "job.json", "observed.json"


@dataclass(frozen=True, slots=True)
class WhyJob:
    """What the child needs to know."""

    path: str
    argv: tuple[str, ...]
    time_guards: bool
    forecast_seconds: float = 0.0
    """The limit of a forecast, which is made in place of a whole run; 0 for none."""
    vary: tuple[str, ...] = ()
    """What the forecast is for; everything that may vary where it is empty."""


@dataclass(frozen=True, slots=True)
class Observation:
    """How the script ended, and what Dynamo did until then."""

    exit_code: int
    message: str
    """What `sys.exit` was given to print; empty for a number."""
    failure: Failure | None
    report: Report | None
    """None where the child ended without one: it was killed, or called `os._exit`."""


def observe_script(job: Any, child: str = WHY_CHILD) -> Observation:
    """Run the script in a child to its end; an interrupt reaches the child too, and is raised here.

    `child` is the module that the new process runs; it reads the job, a record, and calls `save_observation`.
    """
    with tempfile.TemporaryDirectory(prefix="aotlens-why-") as folder:
        Path(folder, JOB).write_text(json.dumps(encode_record(job)), encoding="utf-8")
        command = [sys.executable, "-m", child, folder]
        done = subprocess.run(command, stdout=sys.stderr.fileno(), check=False)
        observed = Path(folder, OBSERVED)
        if not observed.exists():
            return Observation(_exit_code(done.returncode), "", None, None)
        return _observed(json.loads(observed.read_text(encoding="utf-8")))


def _exit_code(code: int) -> int:
    """As a shell gives it: 128 and the number of the signal that ended the process."""
    return 128 - code if code < 0 else code


def signal_of_exit_code(exit_code: int) -> str:
    """The signal that an exit code stands for; empty for none."""
    try:
        return signal.Signals(exit_code - 128).name if exit_code > 128 else ""
    except ValueError:
        return ""


def _observed(data: dict[str, Any]) -> Observation:
    failure = data["failure"]
    return Observation(
        data["exit_code"],
        data["message"],
        None if failure is None else decode_record(Failure, failure),
        decode(data["report"]),
    )


def save_observation(folder: str, end: "ScriptEnd", report: Report) -> int:
    """In the child: leave the answer where the parent finds it, at once or not at all.

    Returns the script's exit code, which is the child's.
    """
    sys.stdout.flush()
    failure = None if end.failure is None else encode_record(end.failure)
    observed = {
        "exit_code": end.exit_code,
        "message": end.message,
        "failure": failure,
        "report": encode(report),
    }
    path = Path(folder, OBSERVED)
    writing = path.with_suffix(f".{os.getpid()}")
    writing.write_text(json.dumps(observed), encoding="utf-8")
    writing.replace(path)
    return end.exit_code
