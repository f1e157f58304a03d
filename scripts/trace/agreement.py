"""Compare the reports made of torch's logs with our own reports of the same programs, fact by fact.

    python scripts/trace/agreement.py LOGS              the table for docs/attach.md, as Markdown
    python scripts/trace/agreement.py LOGS --details    every fact that differs
    python scripts/trace/agreement.py LOGS --write docs/attach.md    put the table there

LOGS is the folder that scripts/trace/logs.py wrote. `aotlens inspect` traces each program once more, one of
several ranks under torchrun; then the log of each rank is compared with the report of that rank.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from aotlens.model.codec import loads
from aotlens.model.report import Report, Site, Span, Target
from aotlens.trace.build import build_report
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.source.source_lines import Sources
from aotlens.trace.source.workspace import Workspace
from aotlens.view.quantities import human_bytes
from scripts.docs.marked_tables import write_table
from scripts.trace.logs import LIMIT_S, OF_TWO_RANKS, torchrun
from tests.command import aotlens

PROGRAMS = Path(__file__).resolve().parents[2] / "tests" / "trace" / "programs"
BEGIN, END = "<!-- agreement -->", "<!-- /agreement -->"
Fact = tuple[str, ...]
"""Its kind, then the compared values."""


SAVED = "saved value"
"""Which values are saved is each solver's choice; those that both save must agree."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """One kind of fact in one log."""

    both: int
    only_log: tuple[Fact, ...]
    only_ours: tuple[Fact, ...]

    @property
    def total(self) -> int:
        """Return the number of facts on either side; a pair that differs counts once."""
        return self.both + max(len(self.only_log), len(self.only_ours))


def facts(report: Report) -> Iterator[Fact]:
    """Yield every fact that both kinds of report can have."""
    for target in report.targets:
        yield from _of_target(target)
    for entry in report.dynamo.breaks if report.dynamo is not None else ():
        yield "graph break", str(entry.span.line)
    for function in report.dynamo.functions if report.dynamo is not None else ():
        if function.recompilations:
            yield "recompilations", str(function.span.line), str(len(function.recompilations))


def _of_target(target: Target) -> Iterator[Fact]:
    home = str(target.span.line) if target.span is not None else "?"
    yield "target", home, target.mode
    for row in target.inputs:
        if row.tensor is None:
            continue
        name = row.fqn or row.name
        yield "input", home, name.removeprefix("self."), row.tensor.short()
        yield "mutation", home, name.removeprefix("self."), str(row.mutates_data), str(row.mutates_metadata)
        if row.mutates_data:
            yield "written at", home, name.removeprefix("self."), *sorted(_lines(row.sites))
    for output in target.outputs:
        if not output.is_side_effect:
            shown = output.tensor.short() if output.tensor is not None else ""
            yield "output", home, str(output.index), shown, str(output.requires_grad)
            yield "alias", home, str(output.index), "alias" if output.base is not None else "new"
    if target.partition is not None:
        for value in target.partition.saved:
            if value.bytes:
                yield SAVED, home, _line(value.span), value.tensor.dtype, str(value.bytes)


def _lines(sites: tuple[Site, ...]) -> set[str]:
    return {_line(site.span) for site in sites}


def _line(span: Span | None) -> str:
    return f"{Path(span.file).stem}:{span.line}" if span is not None else "none"


def compare(log: Report, ours: Report) -> dict[str, Agreement]:
    """Return the kinds of facts, with those of both reports and of one alone."""
    left, right = Counter(facts(log)), Counter(facts(ours))
    kinds = dict.fromkeys(fact[0] for fact in (*left, *right))
    return {
        kind: Agreement(
            sum(count for fact, count in (left & right).items() if fact[0] == kind),
            tuple(fact for fact in (left - right).elements() if fact[0] == kind),
            tuple(fact for fact in (right - left).elements() if fact[0] == kind),
        )
        for kind in kinds
    }


def log_report(folder: Path) -> Report:
    return build_report(open_trace(folder), "", None, Sources(Workspace(PROGRAMS)))


@cache
def our_report(program: str) -> Report:
    """Return the report of `aotlens inspect`, run to its end with our engine in place of Inductor."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        script = PROGRAMS / f"{program}.py"
        ended = aotlens("inspect", "--to-end", "--format", "json", "-o", file, script, "inductor")
        if not file.exists():
            raise SystemExit(f"{program}: {ended.err}")
        return loads(file.read_text())


@cache
def our_reports_of_ranks(program: str) -> tuple[Report, ...]:
    """Return the report of each rank: torchrun starts `aotlens inspect` in place of the script."""
    with tempfile.TemporaryDirectory() as folder:
        inspect = [sys.executable, "-m", "aotlens", "inspect", "--fresh", "--to-end", "--format", "json"]
        script = str(PROGRAMS / f"{program}.py")
        command = [*torchrun(), "--no-python", "sh", "-c", f'"$@" -o {folder}/$RANK.json {script} inductor']
        root = {"PYTHONPATH": str(PROGRAMS.parents[2])}
        subprocess.run(
            [*command, "sh", *inspect], env=os.environ | root, timeout=LIMIT_S, check=False, stdout=sys.stderr
        )
        files = sorted(Path(folder).glob("*.json"))
        return tuple(loads(file.read_text()) for file in files)


def compare_ranks(folder: Path, program: str) -> dict[str, Agreement] | None:
    """Return the sums over the ranks; None if `aotlens inspect` has no report of each rank."""
    logs, reports = sorted(folder.glob("*_rank_*")), our_reports_of_ranks(program)
    if len(reports) < len(logs):
        print(f"{program}: {len(reports)} of {len(logs)} ranks wrote a report", file=sys.stderr)
        return None
    pairs = zip(logs, reports, strict=True)
    return added([compare(log_report(log), ours) for log, ours in pairs])


def added(agreements: list[dict[str, Agreement]]) -> dict[str, Agreement]:
    kinds = dict.fromkeys(kind for each in agreements for kind in each)
    empty = Agreement(0, (), ())
    sums = {}
    for kind in kinds:
        rows = [each.get(kind, empty) for each in agreements]
        only_log = tuple(fact for row in rows for fact in row.only_log)
        only_ours = tuple(fact for row in rows for fact in row.only_ours)
        sums[kind] = Agreement(sum(row.both for row in rows), only_log, only_ours)
    return sums


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path)
    parser.add_argument("--details", action="store_true")
    parser.add_argument("--write", type=Path, metavar="DOCUMENT")
    options = parser.parse_args()
    rows: list[tuple[str, dict[str, Agreement]]] = []
    for folder in sorted(options.logs.iterdir()):
        program = folder.name.partition("-")[0]
        if not any(folder.glob("*.log")) or not (PROGRAMS / f"{program}.py").is_file():
            continue
        if program in OF_TWO_RANKS:
            if (of_ranks := compare_ranks(folder, program)) is not None:
                rows.append((folder.name, of_ranks))
        else:
            rows.append((folder.name, compare(log_report(folder), our_report(program))))
    for name, agreements in rows if options.details else ():
        for agreement in agreements.values():
            for side, differing in (("log", agreement.only_log), ("ours", agreement.only_ours)):
                for fact in differing:
                    print(f"{name}: only in {side}: {' · '.join(fact)}")
    print(table(rows))
    if options.write is not None:
        write_table(options.write, BEGIN, END, table(rows))
    return 0


HEADER = (
    "| log | shared facts | agree | share | differ in | saved by both | torch alone | ours alone |",
    "|---|---|---|---|---|---|---|---|",
)


def table(rows: list[tuple[str, dict[str, Agreement]]]) -> str:
    """Return one row for each log, and one for all, as Markdown."""
    lines = [*HEADER]
    both = total = 0
    for name, agreements in rows:
        saved = agreements.get(SAVED, Agreement(0, (), ()))
        shared = {kind: row for kind, row in agreements.items() if kind != SAVED}
        agree = sum(row.both for row in shared.values()) + saved.both
        count = sum(row.total for row in shared.values()) + saved.both
        both, total = both + agree, total + count
        differing = [
            f"{kind} ({row.total - row.both})" for kind, row in shared.items() if row.total > row.both
        ]
        cells = (f"`{name}`", count, agree, f"{agree / max(count, 1):.1%}", ", ".join(differing) or "–")
        choice = (saved.both, _size(saved.only_log), _size(saved.only_ours))
        lines.append(f"| {' | '.join(str(cell) for cell in (*cells, *choice))} |")
    lines.append(f"| **all** | {total} | {both} | {both / max(total, 1):.1%} | | | | |")
    return "\n".join(lines)


def _size(saved: tuple[Fact, ...]) -> str:
    """Return how many values there are, and their bytes."""
    return f"{len(saved)} ({human_bytes(sum(int(fact[-1]) for fact in saved))})" if saved else "–"


if __name__ == "__main__":
    sys.exit(main())
