"""Ask `aotlens fit --target 75%` for a plan for scripts of the corpus, and write how many reach the target.

    python scripts/fit_advice_table.py [--write] [SCRIPT…]

The peak of each edited script is also measured, as `fit_table.py` does, from a copy beside the script.  A
script counts as reached if its predicted and its measured peak are below the target, and its training is
equal.  Scripts whose parameters and optimizer state alone exceed 65 % of their peak are left out: only
another optimizer would help them.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotlens.model.codec import loads
from aotlens.model.edits import edited
from aotlens.model.fit import Fit, FitPlan
from aotlens.view.quantities import human_bytes
from scripts.fit_table import (
    PAGE,
    ROOT,
    argv_of,
    calls_of,
    in_fork,
    measured,
    recipes,
    rows_of,
    script_arguments,
)
from scripts.marked_tables import write_table

BEGIN, END = "<!-- written by scripts/fit_advice_table.py -->", "<!-- end of the table of advice -->"
SHARE = "75%"
MOST_STATIC = 0.65
STATIC_KINDS = ("parameter", "buffer", "optimizer state")
SECONDS = 900
COPY = "advised_copy_of_"


@dataclass(frozen=True, slots=True)
class Row:
    """One script; `problem` says why it has no plan."""

    script: str
    fit: Fit | None = None
    measured: int = 0
    problem: str = ""

    @property
    def plan(self) -> FitPlan | None:
        return None if self.fit is None else self.fit.plan

    @property
    def is_reached(self) -> bool:
        plan = self.plan
        return plan is not None and plan.is_reached and 0 < self.measured <= plan.target_bytes


def main() -> int:
    """Measure, print, and write the table if requested."""
    arguments = script_arguments()
    rows = rows_of(advised, arguments.scripts or recipes(), _table_row)
    if arguments.write:
        write_table(PAGE, BEGIN, END, table(rows))
    return 0


def advised(script: str) -> Row | None:
    """Return the plan for a script and its measured peak; None for one that is left out."""
    words = argv_of(script)
    fit, problem = _fit([script, *words])
    if fit is None or not fit.step or not fit.is_periodic or _static_share(fit) > MOST_STATIC:
        return None
    fit, problem = _fit(["--target", SHARE, script, *words])
    if fit is None or fit.plan is None:
        return Row(script, problem=problem or "no plan")
    if not fit.plan.titles:
        return Row(script, fit)
    size_bytes, problem = _measured(script, words, fit)
    return Row(script, fit, size_bytes, problem)


def _static_share(fit: Fit) -> float:
    static = sum(row.bytes for row in fit.by_kind if row.kind in STATIC_KINDS)
    return static / max(fit.step_peak_bytes, 1)


def _fit(words: Sequence[str]) -> tuple[Fit | None, str]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "aotlens", "fit", "--format", "json", "-o", file.name, *words]
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return None, f"not done after {SECONDS} s"
        text = Path(file.name).read_text(encoding="utf-8")
        if not text:  # exit code 1 means that a target is not reached
            return None, done.stderr.strip().rpartition("\n")[2]
        return loads(text).fit, ""


def _measured(script: str, words: Sequence[str], fit: Fit) -> tuple[int, str]:
    """Measure the edited script in the folder of the script, so that it finds its data."""
    assert fit.plan is not None
    path = ROOT / script
    edits = [edit for edit in fit.plan.edits if Path(edit.span.file).name == path.name]
    copy = path.with_name(COPY + path.name)
    copy.write_text(edited(path.read_text(encoding="utf-8"), edits), encoding="utf-8")
    try:
        size_bytes, problem = in_fork(lambda: measured(str(copy), words, *calls_of(fit)))
    finally:
        copy.unlink()
    return size_bytes or 0, problem


def table(rows: Sequence[Row]) -> str:
    """Return Markdown, the scripts that reach the target first."""
    order = sorted(rows, key=lambda row: not row.is_reached)
    lines = [
        f"{sum(row.is_reached for row in rows)} of {len(rows)} scripts reach 75 % of their peak.",
        "",
        "| script | peak | target | predicted | measured | edits | training |",
        "|---|---|---|---|---|---|---|",
        *map(_table_row, order),
    ]
    return "\n".join(lines)


def _table_row(row: Row) -> str:
    if row.fit is None or row.plan is None:
        return f"| `{row.script}` | | | | | {row.problem} | |"
    plan = row.plan
    titles = "; ".join(plan.titles) or "none helps"
    measured = human_bytes(row.measured) if row.measured else row.problem or "–"
    cells = [human_bytes(row.fit.step_peak_bytes), human_bytes(plan.target_bytes)]
    cells += [human_bytes(plan.peak_bytes), measured, titles]
    cells.append(plan.outcome if plan.titles else "–")
    return f"| `{Path(row.script).name}` | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
