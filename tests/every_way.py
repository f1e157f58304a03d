"""Every program in every way: both backends, known and symbolic sizes, both policies, beside eager.

`python -m tests.programs [--backend eager|inductor] [--only TEXT] [--workers N]`, which is what
`make test-programs` runs.  The tests run each program in the ways that its tags name; this runs all of them
in all, and fails where something differs from eager, or is unsupported and no list names it.  A stopped
run goes on where it ended: verdicts stand in `build/programs.jsonl`.
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import torch

from aotlens.errors import AotlensError
from aotlens.options import BACKENDS, CompileOptions
from aotlens.verify.observe import observe_alone
from tests.engine.checking import Outcome, check, prepared
from tests.engine.configurations import direct
from tests.engine.judging import is_for
from tests.programs import PROGRAMS, Program
from tests.programs.exceptions import EXCEPTIONS, OTHER_VALUES
from tests.shards import Row, Shards, crash

SHARDS = Shards("tests.programs", Path("build/programs.jsonl"))
POLICIES = ("min-cut", "default")
AS_EAGER = (("fallback_random", True),)
"""Inductor's own option for comparisons: it uses torch's generator."""
FINE = ("as eager", "unsupported as listed")


@dataclass(frozen=True, slots=True)
class Case:
    """One program in one way."""

    program: Program
    backend: str
    dynamic: bool
    policy: str

    @property
    def way(self) -> str:
        return f"{self.backend}, {'symbolic' if self.dynamic else 'known'} sizes, {self.policy}"

    def __str__(self) -> str:
        return f"{self.program.name} ({self.way})"


def judged(case: Case) -> Row:
    """Compare one case with eager in everything that a caller can see."""
    options = CompileOptions(
        backend=case.backend, dynamic=case.dynamic, policy=case.policy, inductor_config=AS_EAGER
    )
    grow = case.dynamic and "dynamic" in case.program.tags
    try:
        outcome = check(case.program, direct(options), grow=grow)
        kind, message = _verdict(case, outcome)
    except Exception as error:  # noqa: BLE001 (told as a crash, and the run goes on)
        return crash(f"{type(error).__name__}: {error}")
    return {"verdict": kind, "reason": message}


def _verdict(case: Case, outcome: Outcome) -> tuple[str, str]:
    name, tolerated = case.program.name, case.program.tolerated
    differences = [
        difference
        for difference in outcome.differences
        if difference.kind not in tolerated
        and not any(row.covers(name, case.backend, difference) for row in OTHER_VALUES)
    ]
    if differences:
        return "differs", "; ".join(map(str, differences[:3]))
    if outcome.refusal is None:
        return "as eager", ""
    is_listed = _listed(case, outcome.refusal)
    return "unsupported as listed" if is_listed else "unsupported", str(outcome.refusal)


def _listed(case: Case, refusal: AotlensError) -> bool:
    """Return True if a list says that it is unsupported, or eager fails too."""
    program = case.program
    if any(row.covers(program.name, case.backend, case.dynamic, str(refusal)) for row in EXCEPTIONS):
        return True
    if program.unsupported is not None:
        return is_for(refusal, program.unsupported)
    if program.later is not None:
        return True
    with program.context():
        eager = observe_alone(prepared(program)[0])
    return eager.failure is not None or eager.backward_failure is not None


def cases(backends: tuple[str, ...], only: str) -> Iterator[Case]:
    for backend, policy, dynamic in product(backends, POLICIES, (False, True)):
        for program in PROGRAMS:
            if only in program.name:
                yield Case(program, backend, dynamic, policy)


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    options = _options()
    backends = (options.backend,) if options.backend else BACKENDS
    cases_by_name = {str(case): case for case in cases(backends, options.only)}
    if options.shard is not None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        mine = list(cases_by_name.items())[options.shard :: options.workers]
        SHARDS.judge(options.shard, ((key, partial(judged, case)) for key, case in mine))
        return 0
    SHARDS.forget(lambda row: row["key"] in cases_by_name and (options.fresh or row["verdict"] not in FINE))
    arguments = ["--workers", str(options.workers), "--only", options.only]
    arguments += ["--backend", options.backend] if options.backend else []
    SHARDS.run(options.workers, arguments)
    return _summary(lambda row: row["key"] in cases_by_name)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, help="default: both")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs with this in their name")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--fresh", action="store_true", help="judge again what is judged already; else only what was not fine"
    )
    parser.add_argument("--shard", type=int, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def _summary(is_counted: Callable[[Row], bool]) -> int:
    """Print a line for everything that is wrong or unsupported without being listed, then the counts."""
    rows = [row for row in SHARDS.rows() if is_counted(row)]
    for row in rows:
        if row["verdict"] not in FINE:
            tell(f"{row['verdict']}: {row['key']}: {(row['reason'].splitlines() or ['no message'])[0]}")
    counts = Counter((row["key"].rpartition(" (")[2].rstrip(")"), row["verdict"]) for row in rows)
    for (way, verdict), count in sorted(counts.items()):
        tell(f"{way:35} {verdict:17} {count:6,}")
    return int(any(row["verdict"] not in FINE for row in rows))
