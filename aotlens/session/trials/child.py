"""The child process that runs a script with edited files, in eager or not, and records what it computes."""

import pickle
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from aotlens.model.codec import encode_record
from aotlens.session.dynamo.log import DynamoLog
from aotlens.session.job_folder import read_job, save_answer
from aotlens.session.run import run_to_end, seed_random_numbers
from aotlens.session.script.edited import importing_edited, load_edited
from aotlens.session.script.source import new_module, run_script
from aotlens.session.trials.fix_trials import OUTCOME, TrialJob
from aotlens.session.trials.recorded_calls import Recorder, compare_runs
from aotlens.torch_api.inductor.compile import with_eager_random_numbers

__all__ = ["main", "run_job"]


def main(folder: str) -> int:
    """Run the job of a folder and write the outcome there."""
    job = read_job(folder, TrialJob)
    outcome = run_job(job)
    sys.stdout.flush()
    save_answer(folder, OUTCOME, outcome)
    return int(outcome["exit_code"])


def run_job(job: TrialJob) -> dict[str, Any]:
    """Run the script in this process; return how it ended, what Dynamo did, and the distance from eager."""
    recorder, log = Recorder(), DynamoLog()

    def script() -> None:
        loaded = load_edited(job.path, job.texts)
        module = new_module(loaded, "__main__")
        seed_random_numbers()
        stance = torch.compiler.set_stance("force_eager") if job.is_eager else nullcontext()
        with (
            importing_edited(job.texts),
            recorder.recording(),
            log.listening(),
            with_eager_random_numbers(),
            stance,
        ):
            run_script(loaded, module, job.argv)

    end = run_to_end(script, job.path)
    recorder.finish()
    reference, comparison = Path(job.reference), None
    if job.is_eager:
        reference.write_bytes(pickle.dumps((recorder.entries, recorder.calls)))
    else:
        entries, calls = pickle.loads(reference.read_bytes())
        comparison = encode_record(compare_runs(Recorder(entries, calls), recorder))
    dynamo = log.dynamo()
    return {
        "exit_code": end.exit_code,
        "failure": None if end.failure is None else end.failure.message,
        "dynamo": None if dynamo is None else encode_record(dynamo),
        "comparison": comparison,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
