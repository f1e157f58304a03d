"""Enter a process that the script spawned: the entry of `multiprocessing`, under the engine.

Invariant: the process exits with the code that it would have without the engine.
"""

import os
import sys
from functools import partial
from multiprocessing import spawn

from aotlens.session.processes.spawning import load_job, save_outcome
from aotlens.session.run import compile_within

__all__ = ["run_spawned"]


def run_spawned(folder: str, **handles: int) -> None:
    """Do what `multiprocessing.spawn.spawn_main` does, and write the outcome to the folder."""
    job = load_job(folder)
    ran = compile_within(job, partial(spawn.spawn_main, **handles))
    if ran.targets or ran.not_compiled:
        save_outcome(folder, str(os.getpid()), ran)
    sys.exit(ran.end.exit_code)
