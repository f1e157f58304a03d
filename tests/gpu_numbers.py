"""The shared list of programs, as code for a GPU, run in Triton's interpreter beside eager.

`python -m tests.gpu_numbers [--only TEXT] [--gpu NAME] [--workers N]`, which is what `make test-gpu-numbers`
runs.  Needs no GPU.  Tells what differs, what could not be interpreted and why, and fails where something
differs.  A stopped run goes on where it ended: verdicts stand in `build/gpu_numbers.jsonl`.
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from aotlens.codegen.gpu.interpreter.records import NotInterpretedError
from aotlens.compiled import Compiled
from aotlens.options import CompileOptions, Interpreted
from aotlens.pipeline import compile_direct
from aotlens.verify.compare import Difference
from aotlens.verify.gpu.gpu_code import computing_dtypes, verify_gpu_code
from tests.engine.checking import check, prepared
from tests.engine.configurations import direct
from tests.programs import PROGRAMS, Program
from tests.shards import Row, Shards

SHARDS = Shards("tests.gpu_numbers", Path("build/gpu_numbers.jsonl"), limit_s=200, at_once=150)
FINE = ("agrees", "agrees but for values", "unsupported", "differs on the CPU too")


@dataclass(frozen=True, slots=True)
class Verdict:
    program: str
    kind: str
    """`agrees`, `agrees but for values`, `unsupported`, `not interpreted`, `differs`,
    `differs on the CPU too`, `crashed`.
    """
    message: str = ""


_BY_NAME = {program.name: program for program in PROGRAMS}


def judged(name: str, gpu: str) -> Verdict:
    """Compare one program with eager in everything that a caller can see."""
    program = _BY_NAME[name]
    compiled: list[Compiled] = []

    def compiler(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
        compiled.append(compile_direct(fn, args, {}, CompileOptions(Interpreted(), gpu=gpu)))
        return compiled[0].call

    try:
        outcome = check(program, compiler)
        wrong = [difference for difference in outcome.differences if difference.kind not in program.tolerated]
        if wrong and (draws(compiled) or rounds(compiled) or takes_attention(compiled)):
            return drawn(program, gpu)
    except Exception as error:  # noqa: BLE001 (told as a crash, and the run goes on)
        return Verdict(name, "crashed", f"{type(error).__name__}: {error}")
    not_run = [difference for difference in wrong if "NotInterpretedError" in difference.actual]
    if not_run or isinstance(outcome.refusal, NotInterpretedError):
        return Verdict(name, "not interpreted", not_run[0].actual if not_run else str(outcome.refusal))
    if wrong:
        on_cpu = check(program, direct(CompileOptions()))
        kind = "differs on the CPU too" if _same(wrong, on_cpu.differences) else "differs"
        return Verdict(name, kind, "; ".join(map(str, wrong[:3])))
    if outcome.refusal is not None:
        return Verdict(name, "unsupported", str(outcome.refusal))
    return Verdict(name, "agrees")


def _same(some: Sequence[Difference], others: Sequence[Difference]) -> bool:
    """Return True if the same things differ, as with Inductor's code for the CPU."""
    return {(difference.kind, difference.name) for difference in some} <= {
        (difference.kind, difference.name) for difference in others
    }


def draws(compiled: Sequence[Compiled]) -> bool:
    """Return True if kernels used random numbers."""
    return any(run.answer.seeds for target in compiled for run in target.code.interpreted.runs)


def rounds(compiled: Sequence[Compiled]) -> bool:
    """Return True if a kernel computes in a coarser dtype than the tolerance of the results assumes."""
    return any(computing_dtypes(target) & {torch.float16, torch.bfloat16} for target in compiled)


def takes_attention(compiled: Sequence[Compiled]) -> bool:
    graphs = (run.graph.lowered for target in compiled for run in target.code.interpreted.runs)
    return any("_scaled_dot_product_" in call.name for graph in graphs for call in graph.calls)


def drawn(program: Program, gpu: str) -> Verdict:
    """Compare like `aotlens verify --gpu`: with the kernels' random numbers and dtypes."""
    with program.context():
        example, _ = prepared(program)
        options = CompileOptions(Interpreted(), gpu=gpu)
        verification = verify_gpu_code(options, example.fn, example.args, example.kwargs)
    if verification.stopped:
        return Verdict(program.name, "not interpreted", verification.summary())
    if verification.unmatched and verification.ok:
        return Verdict(program.name, "agrees but for values", verification.summary())
    wrong = [
        difference
        for difference in verification.comparison.differences
        if difference.kind not in program.tolerated
    ]
    return Verdict(
        program.name, "differs" if wrong or not verification.ok else "agrees", verification.summary()
    )


def _row(name: str, gpu: str) -> Row:
    verdict = judged(name, gpu)
    return {"verdict": verdict.kind, "reason": verdict.message}


def _cases(only: str, gpu: str) -> Iterator[tuple[str, Callable[[], Row]]]:
    for program in PROGRAMS:
        if only in program.name:
            yield f"{program.name} ({gpu})", partial(_row, program.name, gpu)


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    options = _options()
    cases = dict(_cases(options.only, options.gpu))
    if options.shard is not None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        SHARDS.judge(options.shard, list(cases.items())[options.shard :: options.workers])
        return 0
    SHARDS.forget(lambda row: row["key"] in cases and (options.fresh or row["verdict"] not in FINE))
    arguments = ["--workers", str(options.workers), "--only", options.only, "--gpu", options.gpu]
    SHARDS.run(options.workers, arguments)
    return _summary([row for row in SHARDS.rows() if row["key"] in cases])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_numbers", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="programs with this in their name")
    parser.add_argument("--gpu", default="sm_90")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--fresh", action="store_true", help="judge again what is judged already; else only what was not fine"
    )
    parser.add_argument("--shard", type=int, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def _summary(rows: Sequence[Row]) -> int:
    """Print a line for each verdict that is not simply agreement, then the counts."""
    for row in rows:
        if row["verdict"] != "agrees":
            tell(f"{row['verdict']}: {row['key']}: {(row['reason'].splitlines() or [''])[0]}")
    counts = Counter(row["verdict"] for row in rows)
    for kind, count in sorted(counts.items()):
        tell(f"{kind:22} {count:6,}")
    return int(bool(counts["differs"] or counts["crashed"]))


if __name__ == "__main__":
    sys.exit(main())
