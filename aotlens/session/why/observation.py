"""Run a script unchanged in its own process, and record what Dynamo does.

Invariant: the script has its own backend, arguments, standard input and random numbers; its output goes to
stderr at once, and its exit code stays its own.
"""

import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotlens.model.codec import decode, decode_record, encode, encode_record
from aotlens.model.failure import Failure
from aotlens.model.report import Report
from aotlens.session.job_folder import read_answer, save_answer, write_job
from aotlens.view.quantities import limit_text

if TYPE_CHECKING:  # it imports torch, which only the child has loaded
    from aotlens.session.run import ScriptEnd

__all__ = ["Observation", "WhyJob", "observe_script", "read_observation", "save_observation"]

WHY_CHILD = "aotlens.session.why.child"
OBSERVED = "observed.json"


@dataclass(frozen=True, slots=True)
class WhyJob:
    """What the child needs to know."""

    path: str
    argv: tuple[str, ...]
    time_guards: bool
    forecast_seconds: float = 0.0
    """The time limit of a forecast, which replaces a whole run; 0 for none."""
    vary: tuple[str, ...] = ()
    """What the forecast varies; empty for everything that may vary."""


@dataclass(frozen=True, slots=True)
class Observation:
    """How the script ended, and what Dynamo did until then."""

    exit_code: int
    message: str
    """The text passed to `sys.exit`; empty for a number."""
    failure: Failure | None
    report: Report | None
    """None if the child ended without a report: it was killed, or called `os._exit`."""
    files: tuple[str, ...] = ()
    """The files that the run read, where the child lists them."""

    @property
    def ending(self) -> str:
        """Return how the process ended, for a run without a report: `was ended by SIGKILL`."""
        name = _signal_of(self.exit_code)
        return f"was ended by {name}" if name else f"exited with code {self.exit_code}"


TIMED_OUT = 124
"""The exit code of a child that exceeded its time limit, as that of the command `timeout`."""


def observe_script(job: Any, child: str = WHY_CHILD, time_limit_s: float | None = None) -> Observation:
    """Run the script in a child to its end; an interrupt also reaches the child, and is raised here.

    `child` is the module that the new process runs; it reads the job and calls `save_observation`.
    """
    with tempfile.TemporaryDirectory(prefix="aotlens-why-") as folder:
        write_job(folder, job)
        command = [sys.executable, "-m", child, folder]
        try:
            done = subprocess.run(command, stdout=sys.stderr.fileno(), check=False, timeout=time_limit_s)
        except subprocess.TimeoutExpired:
            return Observation(TIMED_OUT, "", _timeout(time_limit_s), None)
        return read_observation(folder) or Observation(_exit_code(done.returncode), "", None, None)


def _timeout(time_limit_s: float | None) -> Failure:
    return Failure(
        "timeout", f"the script did not end within {limit_text(time_limit_s or 0.0)}; see --time-limit"
    )


def _exit_code(code: int) -> int:
    """Return the exit code as a shell does: 128 plus the number of the signal that ended the process."""
    return 128 - code if code < 0 else code


def _signal_of(exit_code: int) -> str:
    """Return the name of the signal in a shell's exit code; empty if there is none."""
    try:
        return signal.Signals(exit_code - 128).name if exit_code > 128 else ""
    except ValueError:
        return ""


def read_observation(folder: str) -> Observation | None:
    """Return what the child wrote; None if it was killed before."""
    data = read_answer(folder, OBSERVED)
    if data is None:
        return None
    failure = data["failure"]
    return Observation(
        data["exit_code"],
        data["message"],
        None if failure is None else decode_record(Failure, failure),
        decode(data["report"]),
        tuple(data["files"]),
    )


def save_observation(folder: str, end: "ScriptEnd", report: Report, files: tuple[str, ...] = ()) -> int:
    """Write the observation for the parent atomically, in the child.

    Returns the script's exit code, which is the child's.
    """
    sys.stdout.flush()
    failure = None if end.failure is None else encode_record(end.failure)
    observed = {
        "exit_code": end.exit_code,
        "message": end.message,
        "failure": failure,
        "report": encode(report),
        "files": files,
    }
    save_answer(folder, OBSERVED, observed)
    return end.exit_code
