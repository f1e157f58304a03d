"""Every program in every way: both backends, known and symbolic sizes, both policies, beside eager.

`python -m tests.programs [--backend eager|inductor] [--only TEXT] [--workers N]`, which is what
`make test-programs` runs.  The tests run each program in the ways that its tags name; this runs all of them
in all, tells what differs from eager and what is refused, and fails only where something differs.
"""

import argparse
import multiprocessing
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch

from aotlens.options import BACKENDS, CompileOptions
from tests.engine.checking import check
from tests.engine.test_programs import direct
from tests.programs import PROGRAMS

POLICIES = ("min-cut", "default")


@dataclass(frozen=True, slots=True)
class Case:
    """One program in one way."""

    program: str
    backend: str
    dynamic: bool
    policy: str

    def __str__(self) -> str:
        sizes = "symbolic" if self.dynamic else "known"
        return f"{self.program} ({self.backend}, {sizes} sizes, {self.policy})"


@dataclass(frozen=True, slots=True)
class Verdict:
    case: Case
    kind: str
    """`as eager`, `refused`, `differs` or `crashed`."""
    message: str = ""


_BY_NAME = {program.name: program for program in PROGRAMS}


def judged(case: Case) -> Verdict:
    """One case, compared with eager in everything that a caller can see."""
    program = _BY_NAME[case.program]
    options = CompileOptions(backend=case.backend, dynamic=case.dynamic, policy=case.policy)
    try:
        outcome = check(program, direct(options))
    except Exception as error:  # noqa: BLE001 (told as a crash, and the run goes on)
        return Verdict(case, "crashed", f"{type(error).__name__}: {error}")
    differences = [found for found in outcome.differences if found.kind not in program.tolerated]
    if differences:
        return Verdict(case, "differs", "; ".join(map(str, differences[:3])))
    if outcome.refusal is not None:
        return Verdict(case, "refused", str(outcome.refusal))
    return Verdict(case, "as eager")


def cases(backends: tuple[str, ...], only: str) -> Iterator[Case]:
    for backend, dynamic, policy in product(backends, (False, True), POLICIES):
        for program in PROGRAMS:
            if only in program.name:
                yield Case(program.name, backend, dynamic, policy)


def _quiet() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, help="default: both")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs with this in their name")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    backends = (arguments.backend,) if arguments.backend else BACKENDS
    wanted = list(cases(backends, arguments.only))
    counts: Counter[tuple[str, bool, str, str]] = Counter()
    bad = 0
    with multiprocessing.get_context("spawn").Pool(arguments.workers, _quiet, maxtasksperchild=400) as pool:
        for verdict in pool.imap_unordered(judged, wanted, chunksize=4):
            case = verdict.case
            counts[case.backend, case.dynamic, case.policy, verdict.kind] += 1
            bad += verdict.kind in ("differs", "crashed")
            if verdict.kind != "as eager":
                tell(f"{verdict.kind}: {case}: {(verdict.message.splitlines() or [verdict.kind])[0]}")
    for (backend, dynamic, policy, kind), count in sorted(counts.items()):
        sizes = "symbolic" if dynamic else "known"
        tell(f"{backend:9} {sizes:9} {policy:8} {kind:9} {count:6,}")
    return 1 if bad else 0
