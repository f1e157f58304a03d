"""The folder through which a process gives a job to a child, and gets an answer back.

Invariant: an answer is written atomically, so a child that was killed leaves a whole one or none.  Loads no
torch.
"""

import json
import os
from pathlib import Path
from typing import Any, TypeVar

from aotlens.model.codec import decode_record, encode_record

__all__ = ["PRINTED", "read_answer", "read_job", "save_answer", "write_job"]

JOB, PRINTED = "job.json", "printed"
"""The job, and what the script prints where that is compared."""
Job = TypeVar("Job")


def write_job(folder: str, job: Any) -> None:
    """Write the record for the child."""
    Path(folder, JOB).write_text(json.dumps(encode_record(job)), encoding="utf-8")


def read_job(folder: str, kind: type[Job]) -> Job:
    """Return the job, in the child."""
    return decode_record(kind, json.loads(Path(folder, JOB).read_text(encoding="utf-8")))


def save_answer(folder: str, name: str, data: Any) -> None:
    """Write the data as JSON for the parent, in the child."""
    writing = Path(folder, f"{name}.{os.getpid()}")
    writing.write_text(json.dumps(data), encoding="utf-8")
    writing.replace(Path(folder, name))


def read_answer(folder: str, name: str) -> Any:
    """Return the data of a child's answer; None if it wrote none."""
    path = Path(folder, name)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
