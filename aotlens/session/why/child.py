"""The child process of `aotlens why`: it runs the script like `python SCRIPT ARGS…`, with a listener."""

import platform
import sys
from dataclasses import replace

import torch

from aotlens.diagnostics.tracing import dynamo_findings, from_not_compiled, is_found_in_dynamo
from aotlens.model.dynamo import Dynamo
from aotlens.model.report import Report
from aotlens.session.dynamo.log import DynamoLog
from aotlens.session.job_folder import read_job
from aotlens.session.processes.log import ProcessLog
from aotlens.session.run import ScriptEnd, run_to_end
from aotlens.session.script.source import load_script, new_module, run_script
from aotlens.session.why.cache_keys import load_keys, save_keys
from aotlens.session.why.observation import WhyJob, save_observation

__all__ = ["main"]


def main(folder: str) -> int:
    """Run the script, write the report to the folder, and return the script's exit code."""
    job = read_job(folder, WhyJob)
    if job.forecast_seconds:
        from aotlens.session.why.forecast import forecast_script  # only if a forecast is requested

        end, report = forecast_script(job.path, job.argv, job.vary, job.forecast_seconds)
    else:
        end, report = _observed(job)
    return save_observation(folder, end, report)


def _observed(job: WhyJob) -> tuple[ScriptEnd, Report]:
    """Run the whole script unchanged."""
    log, started = DynamoLog(job.time_guards), ProcessLog()
    log.listener.caches.known += load_keys(job.path)

    def script() -> None:
        loaded = load_script(job.path)
        module = new_module(loaded, "__main__")
        with log.listening(), started.listening():
            run_script(loaded, module, job.argv)

    end = run_to_end(script, job.path)
    stopped = None if end.failure is None else f"the script failed: {end.failure.message}"
    save_keys(job.path, log.listener.caches.known)
    dynamo, records = log.dynamo(), log.records
    if started.records:
        dynamo = replace(dynamo or Dynamo(), processes=started.records)
    findings = (
        *(from_not_compiled(record) for record in records if not is_found_in_dynamo(record)),
        *dynamo_findings(dynamo),
    )
    versions = (torch.__version__, platform.python_version())
    return end, Report(*versions, f"why {job.path}", (), findings, records, dynamo=dynamo, incomplete=stopped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
