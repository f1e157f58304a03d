"""The child process that runs a script with edited files, in eager or not, and records what it computes."""

import importlib.machinery
import json
import linecache
import os
import pickle
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from aotlens.model.codec import decode_record, encode_record
from aotlens.session.dynamo.log import DynamoLog
from aotlens.session.run import run_to_end
from aotlens.session.script.source import Script, load_script, new_module, run_script
from aotlens.session.trials.fix_trials import JOB, OUTCOME, TrialJob
from aotlens.session.trials.recorded_calls import Recorder, compare
from aotlens.torch_api.inductor import with_eager_random_numbers

__all__ = ["main", "run_job"]

SEED = 0


def main(folder: str) -> int:
    """Run the job of a folder and write the outcome there."""
    job = decode_record(TrialJob, json.loads(Path(folder, JOB).read_text(encoding="utf-8")))
    outcome = run_job(job)
    sys.stdout.flush()
    writing = Path(folder, f"{OUTCOME}.{os.getpid()}")
    writing.write_text(json.dumps(outcome), encoding="utf-8")
    writing.replace(Path(folder, OUTCOME))
    return int(outcome["exit_code"])


def run_job(job: TrialJob) -> dict[str, Any]:
    """Run the script in this process; return how it ended, what Dynamo did, and the distance from eager."""
    recorder, log = Recorder(), DynamoLog()
    edited = {os.path.abspath(file): text for file, text in job.texts.items()}

    def script() -> None:
        loaded = load_script(job.path)
        if os.path.abspath(job.path) in edited:
            loaded = Script(job.path, edited[os.path.abspath(job.path)])
            _show(loaded.path, loaded.source)
        module = new_module(loaded, "__main__")
        _seed()
        stance = torch.compiler.set_stance("force_eager") if job.is_eager else nullcontext()
        with (
            _importing(edited),
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
        reference.write_bytes(pickle.dumps((recorder.leaves, recorder.calls)))
    else:
        leaves, calls = pickle.loads(reference.read_bytes())
        comparison = encode_record(compare(Recorder(leaves, calls), recorder))
    dynamo = log.dynamo()
    return {
        "exit_code": end.exit_code,
        "failure": None if end.failure is None else end.failure.message,
        "dynamo": None if dynamo is None else encode_record(dynamo),
        "comparison": comparison,
    }


def _seed() -> None:
    """Seed the random numbers, so that every run has the same, also if the script sets no seed."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(SEED)


def _show(file: str, text: str) -> None:
    """Make tracebacks and Dynamo's lines quote the edited text."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)


@contextmanager
def _importing(texts: Mapping[str, str]) -> Iterator[None]:
    """Run the edited text for imports of these files within the block."""
    loader = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        text = texts.get(os.path.abspath(self.path))
        if text is None:
            return original(self, fullname)
        _show(self.path, text)
        return compile(text, self.path, "exec", dont_inherit=True)

    loader.get_code = get_code  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        loader.get_code = original  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
