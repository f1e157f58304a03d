"""Run `aotlens why` over programs of the corpus, and write a table into docs/why.md.

    python scripts/why_table.py [--write] [GLOB…]

Each program runs in a copy of this process, with the backend `eager` in place of Inductor: that takes
seconds. Its breaks and recompilations are counted twice, by Dynamo's own records and in the report; then
edits are tried as `--try-fixes` does.
"""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from aotlens.model.spans import is_users_own
from aotlens.session.dynamo.log import DynamoLog
from aotlens.session.script.source import load_script, new_module, run_script
from aotlens.session.trials.child import run_job
from aotlens.session.trials.fix_trials import FixTrials, TrialJob, TrialRun, load_trial_run, read_texts
from scripts.marked_tables import write_table

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "corpus" / "programs"
PAGE = ROOT / "docs" / "why.md"
BEGIN, END = "<!-- written by scripts/why_table.py -->", "<!-- end of the corpus table -->"
SECONDS = 240.0
LIMITS = Limits(runs=8, seconds=300.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One program."""

    name: str
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
    targets: int = 0
    """Breaks and recompiling values; those for which there is an edit; those that passed."""
    proposed: int = 0
    passed: int = 0
    failure: str = ""


def main() -> int:
    """Measure, print, and write the table if requested."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("globs", nargs="*", default=["recipes/*"])
    arguments = parser.parse_args()
    rows = []
    for path in sorted({path for glob in arguments.globs for path in PROGRAMS.glob(f"{glob}.py")}):
        rows.append(measured(path))
        print(rows[-1], flush=True)
    text = table(rows)
    print(text)
    if arguments.write:
        write_table(PAGE, BEGIN, END, text)
    return 0


def measured(path: Path) -> Row:
    name = str(path.relative_to(PROGRAMS).with_suffix(""))
    try:
        row, dynamo = in_fork(lambda: observed(path, name), SECONDS)
    except ForkError as error:
        return Row(name, failure=str(error))
    if dynamo is None or not proposed(dynamo, read_texts(files_of(dynamo))):
        return row
    return with_fixes(row, path, dynamo)


def observed(path: Path, name: str) -> tuple[Row, Dynamo | None]:
    """Return what Dynamo counts, and what the report says."""
    set_compilation_metrics_limit(10_000)
    os.chdir(ROOT)
    log, script = DynamoLog(), load_script(str(path))
    with log.listening(), with_eager_backend(), contextlib.suppress(SystemExit):
        run_script(script, new_module(script, "__main__"))
    dynamo = log.dynamo()
    records = get_compilation_metrics()
    recompiled = [entry for entry in records if entry.recompile_reason]
    failed = [entry for entry in records if is_break(entry)]
    breaks = () if dynamo is None else dynamo.breaks
    causes = [entry.cause for entry in (() if dynamo is None else dynamo.recompilations) if entry.cause]
    located = sum(bool(entry.text) and is_users_own(entry.span.file) for entry in breaks)
    located += sum(cause.span is not None or cause.call is not None for cause in causes)
    row = Row(
        name,
        len(graph_break_reasons) + len(failed),
        sum(len(entry.compilations) for entry in breaks),
        len(breaks),
        len(recompiled),
        len(causes),
        located,
        len(targets(dynamo)),
    )
    return row, dynamo


def is_break(entry: Any) -> bool:
    """Return True if a compilation failed because of a break, not of the recompile limit."""
    return entry.fail_type == "Unsupported" and "limit" not in (entry.fail_reason or "")


def with_fixes(row: Row, path: Path, dynamo: Dynamo) -> Row:
    """Return the row with the results of the edits."""
    reference = f"/tmp/why_table_{os.getpid()}.pickle"

    def runner(texts: Mapping[str, str], is_eager: bool) -> TrialRun | None:
        try:
            return in_fork(lambda: trial(path, texts, is_eager, reference), SECONDS)
        except ForkError:
            return None

    result = FixTrials(str(path), runner).find(dynamo, LIMITS)
    Path(reference).unlink(missing_ok=True)
    tried = {(entry.function, entry.target) for entry in result.fixes}
    passed = {(entry.function, entry.target) for entry in result.fixes if entry.passed}
    values = [getattr(row, name) for name in Row.__slots__[:8]]
    return Row(*values, len(tried), len(passed))


def trial(path: Path, texts: Mapping[str, str], is_eager: bool, reference: str) -> TrialRun:
    os.chdir(ROOT)
    printed = io.StringIO()
    with with_eager_backend(), contextlib.redirect_stdout(printed):
        outcome = run_job(TrialJob(str(path), (), dict(texts), is_eager, reference))
    return load_trial_run(outcome, printed.getvalue())


def table(rows: Sequence[Row]) -> str:
    ran = [row for row in rows if not row.failure]
    facts = sum(row.breaks + row.recompilations for row in ran)
    located = sum(row.located for row in ran)
    edits, passed = sum(row.proposed for row in ran), sum(row.passed for row in ran)
    equal = sum(row.breaks_counted == row.breaks_met and row.counted == row.recompilations for row in ran)
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
        f"In {equal} both counts are equal. {located} of {facts} facts stand at an expression of the user's.",
        f"Of {edits} targets with an edit to try, {passed} have one that passed.",
        "",
        f"| {' | '.join(head)} |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        if row.failure:
            lines.append(f"| {row.name} | not run: {row.failure.replace('|', ' ')[:80]} | | | |")
        elif row.targets or row.breaks_counted:
            both = f"{row.breaks_counted}, {row.breaks_met} | {row.counted}, {row.recompilations}"
            where = f"{row.located} of {row.breaks + row.recompilations}"
            lines.append(f"| {row.name} | {both} | {where} | {row.passed} of {row.proposed} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
