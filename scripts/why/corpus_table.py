"""Run `aotlens why` over programs of the corpus, and write a table into docs/why.md.

    python scripts/why/corpus_table.py [--rows FILE] [--seconds N] [--write] [GROUP/NAME…]

Each program runs in a copy of this process, with the backend `eager` in place of Inductor: that takes
seconds.  Its breaks and recompilations are counted twice, by Dynamo's own records and in the report; then
edits are tried as `--try-fixes` does.  Rows are added to FILE as they are measured, and a row of the same
program and release of torch is used again: a run that was stopped goes on.
"""

import argparse
import ast
import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import get_compilation_metrics, graph_break_reasons, set_compilation_metrics_limit

from aotlens.fixes.candidates import files_of, targets
from aotlens.fixes.rules import proposed
from aotlens.fixes.search import Limits
from aotlens.forecast.fork import ForkError, in_fork
from aotlens.forecast.probe import with_eager_backend
from aotlens.model.dynamo import Dynamo
from aotlens.model.source import Span
from aotlens.model.spans import is_users_own, location
from aotlens.session.dynamo.log import DynamoLog
from aotlens.session.script.source import load_script, new_module, run_script
from aotlens.session.trials.child import run_job
from aotlens.session.trials.fix_trials import FixTrials, TrialJob, TrialRun, load_trial_run, read_texts
from corpus import torchvision_ops
from corpus.program import Program, find_programs
from scripts.docs.marked_tables import write_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "why.md"
BEGIN, END = "<!-- written by scripts/why/corpus_table.py -->", "<!-- end of the corpus table -->"
ROWS = ROOT / "build" / "why_rows.jsonl"
SECONDS = 240.0
"""The time limit of one run of a program."""
LIMITS = Limits(runs=8, seconds=300.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One program."""

    name: str
    key: str
    """The program's digest and the release of torch."""
    breaks_counted: int = 0
    """By `torch._dynamo.utils.graph_break_reasons` and failed compilations, once for each that reaches it."""
    breaks_met: int = 0
    """The same sum in the report: for each break the compilations that reach it."""
    breaks: int = 0
    counted: int = 0
    """Recompilations in Dynamo's records of compilations, the one that reaches the limit included."""
    recompilations: int = 0
    located: int = 0
    """Breaks and recompilations at an expression of the user's."""
    elsewhere: tuple[str, ...] = ()
    """The others."""
    targets: int = 0
    """Breaks and recompiling values; those for which there is an edit; those that passed."""
    proposed: int = 0
    passed: int = 0
    rejected: tuple[str, ...] = ()
    """The edits for a target without one that passed."""
    failure: str = ""

    @property
    def agrees(self) -> bool:
        """Return True if Dynamo counts what the report has."""
        return self.breaks_counted == self.breaks_met and self.counted == self.recompilations


def main() -> int:
    """Measure, print, and write the table if requested."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rows", type=Path, default=ROWS, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=1e9, help="measure no further program after this")
    parser.add_argument("programs", nargs="*", metavar="GROUP/NAME", help="patterns; default: all")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    torchvision_ops.install()
    known, deadline = read_rows(arguments.rows), time.monotonic() + arguments.seconds
    rows = []
    for program in find_programs(tuple(arguments.programs)):
        row = known.get((program.name, key_of(program)))
        if row is None and time.monotonic() < deadline:
            row = measured(program)
            add_row(arguments.rows, row)
            print(row, flush=True)
        if row is not None:
            rows.append(row)
    text = table(rows)
    print(text)
    if arguments.write:
        write_table(PAGE, BEGIN, END, text)
    return 0


def key_of(program: Program) -> str:
    return f"{program.digest[:16]} {torch.__version__}"


def read_rows(file: Path) -> dict[tuple[str, str], Row]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    rows = [Row(**json.loads(line)) for line in lines]
    return {(row.name, row.key): row for row in rows}


def add_row(file: Path, row: Row) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(row)) + "\n")


def measured(program: Program) -> Row:
    """Return the row, from a copy of this process that has imported the program's libraries."""
    empty = Row(program.name, key_of(program))
    try:
        return in_fork(lambda: with_libraries(program, empty), 3 * SECONDS + LIMITS.seconds)
    except ForkError as error:
        return replace(empty, failure=str(error))


def with_libraries(program: Program, empty: Row) -> Row:
    with with_eager_backend():  # until the end: lightning puts a wrapper of its own around `torch.compile`
        import_libraries(program.path)
        row, dynamo = in_fork(lambda: observed(program, empty), SECONDS)
        if dynamo is None or not proposed(dynamo, read_texts(files_of(dynamo))):
            return row
        return with_fixes(row, program, dynamo)


def import_libraries(path: Path) -> None:
    """Execute the imports at the top of the program, so that its runs need not."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(tree, str(path), "exec"), {})  # noqa: S102 (a program of the corpus)


def observed(program: Program, empty: Row) -> tuple[Row, Dynamo | None]:
    """Return what Dynamo counts, and what the report says."""
    set_compilation_metrics_limit(10_000)
    log, script = DynamoLog(), load_script(str(program.path))
    with log.listening(), with_eager_backend(), contextlib.suppress(SystemExit):
        run_script(script, new_module(script, "__main__"), program.args)
    dynamo = log.dynamo()
    records = get_compilation_metrics()
    recompiled = [entry for entry in records if entry.recompile_reason]
    failed = [entry for entry in records if is_break(entry)]
    breaks = () if dynamo is None else dynamo.breaks
    facts = [] if dynamo is None else list(facts_of(dynamo))
    elsewhere = tuple(what for what, span in facts if span is None or not is_users_own(span.file))
    row = replace(
        empty,
        breaks_counted=len(graph_break_reasons) + len(failed),
        breaks_met=sum(len(entry.compilations) for entry in breaks),
        breaks=len(breaks),
        counted=len(recompiled),
        recompilations=len(facts) - len(breaks),
        located=len(facts) - len(elsewhere),
        elsewhere=elsewhere,
        targets=len(targets(dynamo)),
    )
    return row, dynamo


def facts_of(dynamo: Dynamo) -> Iterator[tuple[str, Span | None]]:
    """Yield each break and recompilation, with the most telling span that it has in a file of the user's."""
    for entry in dynamo.breaks:
        yield f"{entry.code} at {location(entry.span)}", entry.span if entry.text else None
    for compilation in dynamo.recompilations:
        cause = compilation.cause
        assert cause is not None
        spans = [span for span in (cause.span, cause.call) if span is not None]
        own = next((span for span in spans if is_users_own(span.file)), None)
        yield f"{cause.kind} of {cause.name}: {cause.guard}", own


def is_break(entry: Any) -> bool:
    """Return True if a compilation failed because of a break, not of the recompile limit."""
    return entry.fail_type == "Unsupported" and "limit" not in (entry.fail_reason or "")


def with_fixes(row: Row, program: Program, dynamo: Dynamo) -> Row:
    """Return the row with the results of the edits."""
    reference = f"/tmp/why_table_{os.getpid()}.pickle"

    def runner(texts: Mapping[str, str], is_eager: bool) -> TrialRun | None:
        job = TrialJob(str(program.path), program.args, dict(texts), is_eager, reference)
        try:
            return in_fork(lambda: trial(job), SECONDS)
        except ForkError:
            return None

    result = FixTrials(str(program.path), runner).find(dynamo, LIMITS)
    Path(reference).unlink(missing_ok=True)
    tried = {(entry.function, entry.target) for entry in result.fixes}
    passed = {(entry.function, entry.target) for entry in result.fixes if entry.passed}
    rejected = tuple(
        f"{entry.function}, {entry.target}: {entry.fix.title}: {entry.rejected}"
        for entry in result.fixes
        if (entry.function, entry.target) not in passed
    )
    return replace(row, proposed=len(tried), passed=len(passed), rejected=rejected)


def trial(job: TrialJob) -> TrialRun:
    printed = io.StringIO()
    with with_eager_backend(), contextlib.redirect_stdout(printed):
        outcome = run_job(job)
    return load_trial_run(outcome, printed.getvalue())


def share(part: int, whole: int) -> str:
    """`9 (90 %)`."""
    return f"{part} ({100 * part / max(1, whole):.0f} %)"


def table(rows: Sequence[Row]) -> str:
    ran = [row for row in rows if not row.failure]
    breaks, recompilations = sum(row.breaks for row in ran), sum(row.recompilations for row in ran)
    located = sum(row.located for row in ran)
    edits, passed = sum(row.proposed for row in ran), sum(row.passed for row in ran)
    quiet = [row for row in ran if not row.targets]
    release = torch.__version__.partition("+")[0]
    head = (
        "program",
        "breaks met: Dynamo, report",
        "recompilations: Dynamo, report",
        "located",
        "edits passed",
    )
    lines = [
        f"{len(ran)} programs ran with torch {release}, {len(quiet)} without a break or recompilation.",
        f"In {sum(row.agrees for row in ran)} both counts are equal.",
        f"Of {breaks} breaks and {recompilations} recompilations,",
        f"{share(located, breaks + recompilations)} have an expression of the user's.",
        f"Of {edits} breaks and recompiling values with an edit to try,",
        f"{share(passed, edits)} have one that passed.",
        "",
        f"| {' | '.join(head)} |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        if row.failure:
            reason = row.failure.removeprefix("ForkError: ").replace("|", " ")[:80]
            lines.append(f"| {row.name} | not run: {reason} | | | |")
        elif row.targets or not row.agrees:
            both = f"{row.breaks_counted}, {row.breaks_met} | {row.counted}, {row.recompilations}"
            where = f"{row.located} of {row.breaks + row.recompilations}"
            lines.append(f"| {row.name} | {both} | {where} | {row.passed} of {row.proposed} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
