"""`python -m corpus`: run the programs that have no row, two at a time, and write the page."""

import argparse
import sys
import time
import tomllib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from corpus.bytecode import compile_bytecode
from corpus.measure import Limits, measure
from corpus.page import page, quick_section
from corpus.program import Program, find_programs
from corpus.published import Row, read_rows, write_rows
from corpus.quick import check, read_quick_rows, write_quick_rows
from corpus.store import ROOT, Key, Store, key_of
from corpus.verdicts import Check, Judged, judge

__all__ = ["main", "run_one", "write_page"]

NOTES = Path(__file__).parent / "notes.toml"
PAGE = ROOT / "docs" / "real-programs.md"
ROWS = Path(__file__).parent / "rows.json"
QUICK_ROWS = Path(__file__).parent / "quick.json"
RESULTS = ROOT / "build" / "corpus"


def main(words: Sequence[str] | None = None) -> int:
    """Run the corpus; exit code 1 if a selected program fails a check of correctness for no known reason."""
    options = _options(words)
    chosen = find_programs(tuple(options.only))
    if not chosen:
        print(f"no program matches {', '.join(options.only)}", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{program.name:45} {program.mode:10} {program.summary}" for program in chosen))
        return 0
    store = Store(options.results)
    if options.quick:
        return _quick(chosen, store, options)
    if options.page_only:
        replaced = list(chosen) if options.only else []
    else:
        replaced = _pending(chosen, options)
        _run_all(replaced, store, options)
    rows = write_page(store, options, {program.name for program in replaced})
    if outdated := _outdated(chosen, rows):
        print(f"rows of another engine or other libraries: {len(outdated)}; --outdated measures them again")
    failures = {
        program.name: _failures(rows[program.name].judged) for program in chosen if program.name in rows
    }
    return _ending(failures, options.page)


def _pending(chosen: Sequence[Program], options: argparse.Namespace) -> list[Program]:
    """Return the programs to run: those without a row, with `--outdated` also those with an old one."""
    if options.fresh:
        return list(chosen)
    rows = read_rows(options.rows, chosen)
    outdated = _outdated(chosen, rows) if options.outdated else ()
    return [program for program in chosen if program.name not in rows or program.name in outdated]


def _outdated(programs: Sequence[Program], rows: Mapping[str, Row]) -> set[str]:
    """Return the programs whose row was measured with another engine, or with other libraries."""
    known = [program for program in programs if program.name in rows]
    return {program.name for program in known if not _is_current(rows[program.name], program)}


def _ending(failures: Mapping[str, Sequence[str]], page: Path) -> int:
    """Print which programs fail, and whether `notes.toml` says why; return 1 if it does not for one."""
    notes = _notes()
    failing = {name: found for name, found in failures.items() if found}
    for name, found in failing.items():
        print(f"{name}: {'; '.join(found)}{'' if name in notes else ' (no reason in notes.toml)'}")
    print(f"{len(failures)} programs have a row in {page}, {len(failures) - len(failing)} pass each check")
    return int(any(name not in notes for name in failing))


def _notes() -> dict[str, str]:
    return tomllib.loads(NOTES.read_text(encoding="utf-8"))


def _quick(chosen: Sequence[Program], store: Store, options: argparse.Namespace) -> int:
    """Check the programs that have no row; each result is written at once, so that a stopped run can
    continue.
    """
    programs = find_programs()
    rows, known = read_quick_rows(options.quick_rows, programs), read_rows(options.rows, programs)
    pending = [
        candidate
        for candidate in chosen
        if candidate.name not in known and (options.fresh or candidate.name not in rows)
    ]
    limits = Limits(options.limit)
    with ThreadPoolExecutor(options.jobs) as pool:
        for program, row in zip(
            pending, pool.map(lambda candidate: check(candidate, limits), pending), strict=True
        ):
            rows[program.name] = row
            write_quick_rows(options.quick_rows, rows, programs)
            print(f"{program.name}: {'; '.join(row.failures) or 'fine'}", flush=True)
    write_page(store, options)
    return int(any(rows[program.name].failures for program in pending))


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m corpus", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="programs by group/name")
    parser.add_argument("--fresh", action="store_true", help="run again what has a row")
    parser.add_argument(
        "--outdated", action="store_true", help="run again what was measured with another engine or library"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="programs at a time (default 2)")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="per run (default 600)")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="warm runs each (default 2)")
    parser.add_argument(
        "--quick", action="store_true", help="check what has no row, without times or Inductor's kernels"
    )
    parser.add_argument("--quick-rows", type=Path, default=QUICK_ROWS, metavar="FILE", help="those checks")
    parser.add_argument("--no-verify", action="store_true", help="without the run under --verify")
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu", help="which times the page shows")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    parser.add_argument("--rows", type=Path, default=ROWS, metavar="FILE", help="the published rows")
    parser.add_argument(
        "--page-only",
        action="store_true",
        help="run nothing, write the page; stored results replace the rows of the programs that --only names",
    )
    parser.add_argument("--list", action="store_true", help="print the programs and end")
    return parser.parse_args(words)


def _run_all(programs: Sequence[Program], store: Store, options: argparse.Namespace) -> None:
    compile_bytecode()
    limits = Limits(options.limit, options.rounds, verify=not options.no_verify)
    with ThreadPoolExecutor(options.jobs) as pool:
        run = partial(run_one, store=store, limits=limits, fresh=options.fresh)
        for line in pool.map(run, programs):
            print(line, flush=True)


def run_one(program: Program, store: Store, limits: Limits, *, fresh: bool) -> str:
    """Measure the program unless there is a result; return a line about the outcome."""
    try:
        key = key_of(program)
    except PackageNotFoundError as error:
        return f"{program.name}: not run, {error.name} is not installed"
    if not fresh and store.current(program, key):
        return f"{program.name}: has a result"
    start = time.monotonic()
    measured = measure(program, limits)
    store.put(program, measured)
    failures = _failures(judge(program, measured))
    return f"{program.name}: {time.monotonic() - start:.0f} s, {'; '.join(failures) or 'fine'}"


def _failures(judged: Judged) -> list[str]:
    checks: dict[str, Check] = {
        "exit code": judged.exit_code,
        "output": judged.output,
        "values": judged.values,
        "graphs": judged.graphs,
        "verify": judged.verify,
    }
    return [f"{name}: {check.text}" for name, check in checks.items() if check.state == "fail"]


def write_page(store: Store, options: argparse.Namespace, names: Collection[str] = ()) -> dict[str, Row]:
    """Write the page and its rows as data, and return the rows by program.

    The stored results of the programs of these names replace published rows; any other result may be older
    than its row.
    """
    programs = find_programs()
    rows = read_rows(options.rows, programs)
    for program in programs:
        measured = store.get(program)
        is_newer = program.name in names or program.name not in rows
        if measured is not None and measured.program_digest == program.digest and is_newer:
            judged = judge(program, measured, options.clock)
            rows[program.name] = Row(judged, measured.engine, measured.versions)
    write_rows(options.rows, rows, programs)
    judged_rows = {name: row.judged for name, row in rows.items()}
    quick = read_quick_rows(options.quick_rows, programs)
    only_checked = {name: row for name, row in quick.items() if name not in rows}
    text = page(
        programs, judged_rows, _notes(), options.clock, len(_outdated(programs, rows))
    ) + quick_section(programs, only_checked)
    options.page.write_text(text, encoding="utf-8")
    return rows


def _is_current(row: Row, program: Program) -> bool:
    """Return True if the row was measured with this engine and the installed libraries."""
    try:
        return Key(program.digest, row.engine, row.versions) == key_of(program)
    except PackageNotFoundError:
        return False
