"""The shared list of programs, as code for a GPU, run in Triton's interpreter beside eager.

`python -m tests.gpu_numbers [--only TEXT] [--gpu NAME] [--workers N]`, which is what `make test-gpu-numbers`
runs.  Needs no GPU.  Tells what differs, what could not be interpreted and why, and fails where something
differs.
"""

import argparse
import multiprocessing
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import partial

import torch

from aotlens.codegen.gpu.interpreter.records import NotInterpretedError
from aotlens.options import CompileOptions, Interpreted
from tests.engine.checking import check
from tests.engine.test_programs import direct
from tests.programs import PROGRAMS


@dataclass(frozen=True, slots=True)
class Verdict:
    program: str
    kind: str
    """`agrees`, `refused`, `not interpreted`, `differs` or `crashed`."""
    message: str = ""


_BY_NAME = {program.name: program for program in PROGRAMS}


def judged(name: str, gpu: str) -> Verdict:
    """One program, compared with eager in everything that a caller can see."""
    program = _BY_NAME[name]
    try:
        outcome = check(program, direct(CompileOptions(Interpreted(), gpu=gpu)))
    except Exception as error:  # noqa: BLE001 (told as a crash, and the run goes on)
        return Verdict(name, "crashed", f"{type(error).__name__}: {error}")
    differences = [found for found in outcome.differences if found.kind not in program.tolerated]
    if differences:
        return Verdict(name, "differs", "; ".join(map(str, differences[:3])))
    if isinstance(outcome.refusal, NotInterpretedError):
        return Verdict(name, "not interpreted", str(outcome.refusal))
    if outcome.refusal is not None:
        return Verdict(name, "refused", str(outcome.refusal))
    return Verdict(name, "agrees")


def _quiet() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_numbers", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="programs with this in their name")
    parser.add_argument("--gpu", default="sm_90")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    wanted = [program.name for program in PROGRAMS if arguments.only in program.name]
    counts: Counter[str] = Counter()
    with multiprocessing.get_context("spawn").Pool(arguments.workers, _quiet) as pool:
        for verdict in pool.imap_unordered(partial(judged, gpu=arguments.gpu), wanted):
            counts[verdict.kind] += 1
            if verdict.kind != "agrees":
                tell(f"{verdict.kind}: {verdict.program}: {(verdict.message.splitlines() or [''])[0]}")
    for kind, count in sorted(counts.items()):
        tell(f"{kind:16} {count:6,}")
    return 1 if counts["differs"] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
