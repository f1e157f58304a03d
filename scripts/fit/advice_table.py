"""Ask `aotlens fit --target 75%` for a plan for scripts of the corpus, and write how many reach the target.

    python scripts/fit/advice_table.py [--write] [--stale-ok] [SCRIPT…]

The peaks without and with the edits are also measured, as `fit_table.py` does, the latter from a copy beside
the script.  A script counts as reached if with the edits the predicted peak is at most 75 % of the predicted
one, the measured peak at most 75 % of the measured one, and its training is equal.  Scripts of which more
than 75 % exists at once with the edits that were found are listed apart: they need another model or
optimizer.
With SCRIPT, the page keeps the rows of the others.

Results are in `build/fit-advice`, one file per script, so that a stopped run goes on; they count for the same
script and the same source of `aotlens.fit`, with `--stale-ok` also for other sources of it.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from aotlens.errors import ReportError
from aotlens.model.codec import decode_record, encode_record, loads
from aotlens.model.edits import edited
from aotlens.model.fit import Fit
from aotlens.model.source import Edit
from aotlens.view.quantities import human_bytes
from scripts.docs.marked_tables import write_table
from scripts.fit.cpu_table import (
    EXAMPLES,
    NEEDS_VALUES,
    PAGE,
    ROOT,
    argv_of,
    calls_of,
    in_fork,
    measured,
    recipes,
    rows_of,
)

BEGIN, END = "<!-- written by scripts/fit/advice_table.py -->", "<!-- end of the table of advice -->"
RESULTS = ROOT / "build" / "fit-advice"
SHARE = 0.75
OUT_OF_REACH = "out of reach, because more than 75 % exists at once with the edits that were found"
SECONDS = 300
COPY = "advised_copy_of_"
REACHED, MISSED = "yes", "no"


@dataclass(frozen=True, slots=True)
class Row:
    """One script; `problem` says why it has no plan."""

    script: str
    digest: str = ""
    """Of the script's text."""
    engine: str = ""
    """The digest of the source that made the plan."""
    peak: int = 0
    floor: int = 0
    """What exists at once with the edits that were found; 0 if the target is reached."""
    target: int = 0
    predicted: int = 0
    """The predicted peak with the edits."""
    measured_before: int = 0
    measured: int = 0
    """With the edits."""
    titles: tuple[str, ...] = ()
    training: str = ""
    problem: str = ""
    left_out: str = ""
    """Why the script does not count."""
    seconds: float = 0.0

    @property
    def is_reached(self) -> bool:
        is_equal = self.training.startswith("equal")
        is_measured = 0 < self.measured <= SHARE * self.measured_before
        return is_equal and is_measured and self.predicted <= self.target


def main() -> int:
    """Measure, print, and write the table if requested."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--stale-ok", action="store_true")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="time limit of a script")
    parser.add_argument("scripts", nargs="*")
    arguments = parser.parse_args()
    scripts = arguments.scripts or (*recipes(), *EXAMPLES)
    measure = _stored(partial(advised, seconds=arguments.seconds), is_stale_ok=arguments.stale_ok)
    rows = rows_of(measure, scripts, _table_row, workers=1)
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        kept = entries_of(page.partition(BEGIN)[2].partition(END)[0]) if arguments.scripts else {}
        write_table(PAGE, BEGIN, END, table({**kept, **entries(rows)}))
    return 0


def _stored(measure: Callable[[str], Row], *, is_stale_ok: bool) -> Callable[[str], Row]:
    """Return a function that measures a script only if it has no result."""

    def row_of(script: str) -> Row:
        path = (RESULTS / script.replace("/", "_")).with_suffix(".json")
        script_digest = hashlib.sha256((ROOT / script).read_bytes()).hexdigest()[:16]
        row = _read(path)
        is_current = row is not None and row.digest == script_digest
        if row is not None and is_current and (is_stale_ok or row.engine == engine_digest()):
            return row
        started = time.monotonic()
        row = replace(measure(script), digest=script_digest, engine=engine_digest())
        row = replace(row, seconds=round(time.monotonic() - started, 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_text(row), encoding="utf-8")
        return row

    return row_of


def json_text(row: Row) -> str:
    return json.dumps(encode_record(row), indent=2) + "\n"


def _read(path: Path) -> Row | None:
    try:
        return decode_record(Row, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ReportError):
        return None


@cache
def engine_digest() -> str:
    """Return one name for the source of `aotlens.fit`."""
    hashed = hashlib.sha256()
    for path in sorted((ROOT / "aotlens" / "fit").rglob("*.py")):
        hashed.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()[:16]


def advised(script: str, seconds: int = SECONDS) -> Row:
    """Return the plan for a script and its measured peak."""
    words = argv_of(script)
    options: tuple[str, ...] = ()
    fit, problem = fit_of([script, *words], seconds)
    if NEEDS_VALUES in problem:
        options = ("--real",)
        fit, problem = fit_of([*options, script, *words], seconds)
    if fit is None:
        return Row(script, left_out=problem)
    if not fit.step or not fit.is_periodic:
        return Row(script, left_out="no step repeats" if fit.step else "no optimizer step")
    fit, problem = fit_of([*options, "--target", str(SHARE), script, *words], seconds)
    if fit is None or fit.plan is None:
        return Row(script, problem=problem or "no plan")
    plan = fit.plan
    row = Row(
        script,
        peak=fit.step_peak_bytes,
        floor=plan.floor_bytes,
        target=plan.target_bytes,
        predicted=plan.peak_bytes,
        titles=plan.titles,
        left_out=OUT_OF_REACH if plan.floor_bytes > plan.target_bytes else "",
    )
    if not plan.titles:
        return row
    size_bytes, problem = _measured(script, words, fit)
    before, _ = in_fork(lambda: measured(script, words, *calls_of(fit)))
    row = replace(row, measured_before=before or 0, measured=size_bytes)
    return replace(row, training=plan.outcome, problem=problem)


def fit_of(words: Sequence[str], seconds: int = SECONDS) -> tuple[Fit | None, str]:
    """Return what `aotlens fit` reports, or why it reports nothing within the time."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "aotlens", "fit", "--format", "json", "-o", file.name, *words]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        ) as process:
            try:
                _, errors = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGINT)  # the trials end with it
                return None, f"not done after {seconds} s"
        text = Path(file.name).read_text(encoding="utf-8")
        if not text:  # exit code 1 means that a target is not reached
            return None, errors.strip().rpartition("\n")[2]
        report = loads(text)
        if report.incomplete is not None and (report.fit is None or not report.fit.step):
            return None, report.incomplete
        return report.fit, ""


def _measured(script: str, words: Sequence[str], fit: Fit) -> tuple[int, str]:
    """Measure the script with the edits of its plan."""
    assert fit.plan is not None
    with edited_copy(script, fit.plan.edits) as copy:
        size_bytes, problem = in_fork(lambda: measured(copy, words, *calls_of(fit)))
    return size_bytes or 0, problem


@contextmanager
def edited_copy(script: str, edits: Sequence[Edit]) -> Iterator[str]:
    """Write a copy with the edits into the folder of the script, where it finds its data; yield its path."""
    path = ROOT / script
    own = [edit for edit in edits if Path(edit.span.file).name == path.name]
    copy = path.with_name(COPY + path.name)
    copy.write_text(edited(path.read_text(encoding="utf-8"), own), encoding="utf-8")
    try:
        yield str(copy)
    finally:
        copy.unlink()


def entries(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Return the heading below which a script is listed, and its text there, by its name."""
    found = {}
    for row in rows:
        group = row.left_out or (REACHED if row.is_reached else MISSED)
        name = f"`{Path(row.script).name}`"
        sizes = f" ({human_bytes(row.floor)} of {human_bytes(row.peak)})" if row.floor else ""
        found[name] = group, f"{name}{sizes}" if row.left_out else _table_row(row)
    return found


def entries_of(text: str) -> dict[str, tuple[str, str]]:
    """Return the same, as a table of the page has it."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            found[line.split(" | ")[0].removeprefix("| ")] = line.rstrip(" |").rpartition(" ")[2], line
        elif line.startswith("- "):
            group, _, names = line.removeprefix("- ").rpartition(": ")
            found.update({name.split(" (")[0]: (group, name) for name in names.split(", ")})
    return found


def table(listed: dict[str, tuple[str, str]]) -> str:
    """Return Markdown, the scripts that reach the target first, and those that are left out below."""
    reached = [line for group, line in listed.values() if group == REACHED]
    missed = [line for group, line in listed.values() if group == MISSED]
    lines = [
        f"{len(reached)} of {len(reached) + len(missed)} scripts reach 75 % of their peak.",
        "",
        "| script | predicted | with edits | measured | with edits | edits | training | reached |",
        "|---|---|---|---|---|---|---|---|",
        *reached,
        *missed,
        "",
        "Left out:",
        "",
    ]
    for reason in sorted({group for group, _ in listed.values()} - {REACHED, MISSED}):
        names = ", ".join(text for group, text in listed.values() if group == reason)
        lines.append(f"- {reason}: {names}")
    return "\n".join(lines)


def _table_row(row: Row) -> str:
    name = f"`{Path(row.script).name}`"
    if row.left_out:
        return f"| {name} | left out: {row.left_out} |"
    sizes = (row.peak, row.predicted, row.measured_before, row.measured)
    cells = [human_bytes(size) if size else "–" for size in sizes]
    edits = "; ".join(row.titles) or row.problem or "none helps"
    reached = REACHED if row.is_reached else MISSED
    return f"| {name} | {' | '.join(cells)} | {edits} | {row.training or '–'} | {reached} |"


if __name__ == "__main__":
    sys.exit(main())
