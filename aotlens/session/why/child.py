"""The child process of `aotlens why`: it runs the script like `python SCRIPT ARGS…`, with a listener."""

import platform
import sys
from dataclasses import replace

import torch

from aotlens.diagnostics.tracing import dynamo_findings, from_not_compiled, is_found_in_dynamo
from aotlens.model.dynamo import Dynamo
from aotlens.model.report import Report
from aotlens.session.collector import Collector, counting_calls
from aotlens.session.dynamo.calls_in_eager import of_calls_in_eager
from aotlens.session.dynamo.log import DynamoLog
from aotlens.session.dynamo.not_compiled import losses
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
    log, started, collector = DynamoLog(job.time_guards), ProcessLog(), Collector(job.path)
    log.listener.on_run = collector.count_graph
    log.listener.caches.known += load_keys(job.path)

    def script() -> None:
        loaded = load_script(job.path)
        module = new_module(loaded, "__main__")
        with log.listening(), started.listening(), counting_calls(collector):
            run_script(loaded, module, job.argv)

    end = run_to_end(script, job.path)
    save_keys(job.path, log.listener.caches.known)
    calls = of_calls_in_eager(collector, log)
    records = losses(collector, log, calls)
    dynamo = log.dynamo()
    if started.records or calls:
        dynamo = dynamo or Dynamo()
        limited = {function.name for function in dynamo.functions if function.limit_hit}
        in_eager = tuple(
            record
            for record in calls
            if record.name not in limited  # its calls are already counted there
        )
        dynamo = replace(dynamo, processes=started.records, calls_in_eager=in_eager)
    findings = (
        *(from_not_compiled(record) for record in records if not is_found_in_dynamo(record)),
        *dynamo_findings(dynamo),
    )
    versions = (torch.__version__, platform.python_version())
    report = Report(
        *versions, f"why {job.path}", (), findings, records, dynamo=dynamo, incomplete=end.incomplete
    )
    return end, report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
