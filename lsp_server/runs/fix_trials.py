"""Runs of `aotlens why --try-fixes` for the user, and their reports."""

import os

from aotlens.errors import AotlensError
from aotlens.model.codec import loads
from aotlens.model.dynamo import Dynamo
from aotlens.model.failure import Failure
from aotlens.model.report import Report
from aotlens.worker.fit_command import cli_words
from lsp_server.runs.script_runs import Command, ScriptRuns
from lsp_server.settings import Settings

__all__ = ["FixTrials"]

PROGRESS = "aotlens: trying fixes: "
FIRST_STAGE = "the script as it is"


class FixTrials(ScriptRuns):
    """The runs that try fixes."""

    async def run(self, path: str, settings: Settings, cwd: str | None) -> Dynamo | Failure:
        """Try fixes for a script and hold those that passed; a newer run for the script cancels this one."""
        options = ("--try-fixes", "--format", "json")
        words = cli_words("why", *options, path, *settings.args, python=settings.python)
        title = f"Trying fixes for {os.path.basename(path)}"
        command = Command(words, title, FIRST_STAGE, _read, PROGRESS)
        answer = await self._report(path, cwd, command, self._views.hold_tested)
        return answer if isinstance(answer, Failure) else answer.dynamo or Dynamo()


def _read(path: str, data: bytes, errors: str) -> Report | Failure:
    """Return the report on stdout, or the reason why there is none."""
    last = errors.strip().rpartition("\n")[2]
    try:
        report = loads(data.decode()) if data else None
    except (AotlensError, ValueError) as error:
        return Failure("internal", f"the report of aotlens why cannot be read: {error}", exit_code=3)
    if report is None:
        return Failure("user", f"no fixes were tried: {last or 'aotlens why ended without a report'}")
    if report.incomplete is not None:
        return Failure("user", f"no fixes were tried, because {os.path.basename(path)} fails: {last}")
    return report
