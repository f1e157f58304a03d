"""`python -m tests.operators`: every case over several processes, and the table in `docs/operators.md`.

A run that was stopped goes on where it ended: what is judged stands in `build/operators.jsonl`, one case a
line.  A case that takes its process down is named as such, and the next process goes on after it.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.operators.table import Row, write_table

RESULTS = Path("build/operators.jsonl")
LIMIT_S = 120
"""Longest that one case may compute; it may wait ten times as long, on a machine that others use."""
TOO_LONG = (signal.SIGALRM, signal.SIGPROF)


def main() -> None:
    options = _options()
    if options.fresh:
        RESULTS.unlink(missing_ok=True)
    RESULTS.parent.mkdir(exist_ok=True)
    if options.shard is not None:
        run_shard(options.shard, options.workers, options)
        return
    shards = {number: _start(number, options) for number in range(options.workers)}
    while shards:
        time.sleep(1)
        for number, process in list(shards.items()):
            code = process.poll()
            if code is None:
                continue
            del shards[number]
            if code:
                _record_crash(number, code)
                shards[number] = _start(number, options)
    rows = list(read_rows())
    if not options.only:
        write_table(rows, options.samples)
    bad = [row for row in rows if row.verdict in ("differs", "crashed")]
    sys.exit(1 if bad else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="torch's operator and module databases against eager")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--samples", type=int, default=None, help="samples of each case; all when left out")
    parser.add_argument("--only", default="", help="cases whose key contains this; the table stays as it is")
    parser.add_argument("--fresh", action="store_true", help="forget what is judged already")
    parser.add_argument("--shard", type=int, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def _start(number: int, options: argparse.Namespace) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.operators", "--shard", str(number)]
    command += ["--workers", str(options.workers), "--only", options.only]
    if options.samples is not None:
        command += ["--samples", str(options.samples)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def run_shard(number: int, count: int, options: argparse.Namespace) -> None:
    """Judge every `count`-th case that is not judged yet."""
    from tests.operators.cases import all_cases  # only a shard needs torch's databases, 10 s to import
    from tests.operators.judging import judge_case

    judged = {row.key for row in read_rows()}
    for case in list(all_cases())[number::count]:
        if case.key in judged or options.only not in case.key:
            continue
        _marker(number).write_text(case.key)
        _limit(LIMIT_S)
        try:
            found = judge_case(case, options.samples)
            row = Row(case.key, found.verdict, found.samples, found.reason)
        except Exception as error:  # noqa: BLE001 - whatever one case raises is its row, not the run's end
            row = Row(case.key, "crashed", 0, f"{type(error).__name__}: {error}")
        _limit(0)
        _append(row)
    _marker(number).unlink(missing_ok=True)


def _limit(seconds: int) -> None:
    """End the process, whatever it is stuck in, after so much computing or ten times as much waiting."""
    for kind in TOO_LONG:
        signal.signal(kind, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(10 * seconds)


def _marker(number: int) -> Path:
    return RESULTS.with_name(f"operators.{number}.started")


def _record_crash(number: int, code: int) -> None:
    if not _marker(number).exists():
        sys.exit(f"shard {number} ended with exit code {code} before its first case")
    what = "took too long" if -code in TOO_LONG else f"ended its process with exit code {code}"
    _append(Row(_marker(number).read_text(), "crashed", 0, what))
    _marker(number).unlink()


def _append(row: Row) -> None:
    with RESULTS.open("a") as file:
        file.write(row.to_json() + "\n")


def read_rows() -> Iterator[Row]:
    if RESULTS.exists():
        for line in RESULTS.read_text().splitlines():
            yield Row(**json.loads(line))


if __name__ == "__main__":
    main()
