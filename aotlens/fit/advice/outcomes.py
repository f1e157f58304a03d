"""Write an outcome for the parent, in a trial's process."""

import json
import os
from pathlib import Path
from typing import Any

from aotlens.fit.advice.jobs import OUTCOME
from aotlens.model.codec import encode_record

__all__ = ["save_outcome"]


def save_outcome(folder: str, outcome: Any) -> None:
    """Write the record atomically."""
    writing = Path(folder, f"{OUTCOME}.{os.getpid()}")
    writing.write_text(json.dumps(encode_record(outcome)), encoding="utf-8")
    writing.replace(Path(folder, OUTCOME))
