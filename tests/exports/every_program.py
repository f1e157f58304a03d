"""Every program of the shared list as an exported module: written twice, run without aotlens, equal to eager.

`python -m tests.exports [--backend eager|inductor] [--dynamic] [--only TEXT] [--workers N] [--fresh]`, which
is what `make test-exports` runs.  Three steps, each in processes of its own, which go on where a stopped run
ended: `write` exports, `again` exports under another hash seed and compares the bytes, `run` imports the
modules where aotlens cannot be imported and compares with eager.  Files and verdicts stand in
`build/exports`.
"""

import argparse
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from tests.exports.alone import block, judged
from tests.programs import PROGRAMS, Program
from tests.shards import Row, Shards, crash

FOLDER = Path("build/exports")
STEPS = ("write", "again", "run")
FINE = ("written", "unsupported", "same bytes", "as eager", "sizes built in", "fails in eager")
BACKENDS = ("eager", "inductor")
BATCH = 60
"""Programs that one process judges, for what torch keeps of each."""


class Way:
    """One backend, with known or symbolic sizes, and where its files are."""

    def __init__(self, backend: str, dynamic: bool, folder: Path | None = None) -> None:
        self.backend, self.dynamic = backend, dynamic
        self.name = f"{backend}-{'symbolic' if dynamic else 'known'}"
        self.folder = folder or FOLDER / self.name

    def shards(self, step: str) -> Shards:
        return Shards("tests.exports", FOLDER / f"{self.name}-{step}.jsonl", at_once=BATCH)

    def path(self, program: Program) -> Path:
        return self.folder / f"{program.name.replace('/', '__')}.py"

    def verdicts(self, step: str) -> dict[str, Row]:
        return {row["key"]: row for row in self.shards(step).rows()}


def ask_the_processor() -> None:
    """Find out what it supports: without Inductor's caches, that would build 20 s of probes anew."""
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    valid_vec_isa_list()


def text_of(program: Program, way: Way) -> str:
    """The exported module's text; raises what the export raises."""
    from aotlens import CompileOptions, export  # only in the steps that write
    from tests.engine.checking import prepared

    config = (("fallback_random", True), ("force_disable_caches", True))
    options = CompileOptions(
        way.backend, way.dynamic, inductor_config=config if way.backend == "inductor" else ()
    )
    with program.context():
        _, given = prepared(program)
        return export(given.fn, *given.args, options=options)


def written(program: Program, way: Way) -> Row:
    from aotlens.errors import AotlensError

    way.path(program).unlink(missing_ok=True)
    try:
        text = text_of(program, way)
    except AotlensError as error:
        return {"verdict": "unsupported", "reason": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 - what the user's function raises
        if not _fails_in_eager(program):
            return crash(f"{type(error).__name__}: {error}")
        return {"verdict": "fails in eager", "reason": str(error)[:200]}
    way.path(program).write_text(text)
    return {"verdict": "written", "reason": ""}


def _fails_in_eager(program: Program) -> bool:
    from aotlens.verify.observe import observe_alone
    from tests.engine.checking import prepared

    with program.context():
        observed = observe_alone(prepared(program)[0])
    return observed.failure is not None or observed.backward_failure is not None


def again(program: Program, way: Way) -> Row:
    text, before = text_of(program, way), way.path(program).read_text()
    if text == before:
        return {"verdict": "same bytes", "reason": ""}
    pairs = zip(before.splitlines(), text.splitlines(), strict=False)
    first = next(((one, other) for one, other in pairs if one != other), ("", "one is longer"))
    return {"verdict": "other bytes", "reason": f"{first[0].strip()[:150]} | {first[1].strip()[:150]}"}


def ran(program: Program, way: Way) -> Row:
    wrong = judged(program, way.path(program), way.dynamic and "dynamic" in program.tags)
    if wrong is not None and wrong.startswith("call 3: raised ['compiled `"):
        return {"verdict": "sizes built in", "reason": wrong}  # told by the module, as in this process
    return {"verdict": "as eager" if wrong is None else "differs", "reason": wrong or ""}


JUDGES = {"write": written, "again": again, "run": ran}


def programs(way: Way, step: str, only: str) -> Iterator[Program]:
    exported = None if step == "write" else way.verdicts("write")
    for program in PROGRAMS:
        if only in program.name and (
            exported is None or exported.get(program.name, {}).get("verdict") == "written"
        ):
            yield program


def main() -> int:
    options = _options()
    if options.shard is not None:
        _judge(options)
        return 0
    backends = (options.backend,) if options.backend else BACKENDS
    sizes = (options.dynamic,) if options.backend else (False, True)
    ways = [Way(backend, dynamic) for backend in backends for dynamic in sizes]
    for way in ways:
        way.folder.mkdir(parents=True, exist_ok=True)
        for number, step in enumerate(STEPS):
            wanted = {program.name for program in programs(way, step, options.only)}
            _forget(way, step, wanted, options.fresh)
            os.environ["PYTHONHASHSEED"] = str(number + 1)
            arguments = ["--step", step, "--backend", way.backend, "--only", options.only]
            way.shards(step).run(options.workers, arguments + (["--dynamic"] if way.dynamic else []))
    return _summary(ways, options.only)


def _forget(way: Way, step: str, wanted: set[str], fresh: bool) -> None:
    way.shards(step).forget(
        lambda row: (
            row["key"] in wanted and (fresh or row["verdict"] not in FINE or row["verdict"] == "unsupported")
        )
    )


def _judge(options: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    way = Way(options.backend, options.dynamic)
    if options.step == "run":
        block()
    mine = list(programs(way, options.step, options.only))[options.shard :: options.workers]
    if options.step == "again":  # other programs come before each, and so other states of the process
        mine.reverse()
    judge = JUDGES[options.step]
    way.shards(options.step).judge(
        options.shard, ((program.name, partial(judge, program, way)) for program in mine)
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.exports", description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, help="default: both, with known and symbolic sizes")
    parser.add_argument("--dynamic", action="store_true", help="with symbolic sizes")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs with this in their name")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="judge again what is judged already")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--shard", type=int, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def _summary(ways: list[Way], only: str) -> int:
    """What is wrong, a line each; then what is unsupported, by reason; then the counts."""
    wrong = 0
    for way in ways:
        for step in STEPS:
            rows = [row for key, row in way.verdicts(step).items() if only in key]
            for row in rows:
                if row["verdict"] not in FINE:
                    wrong += 1
                    sys.stdout.write(f"{row['verdict']}: {row['key']} ({way.name}): {row['reason']}\n")
            counts = Counter(row["verdict"] for row in rows)
            told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            sys.stdout.write(f"{way.name:20} {step:6} {told}\n")
    return int(wrong > 0)
