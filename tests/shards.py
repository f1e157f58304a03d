"""Judge many cases in several processes, and write each verdict at once.

A stopped run continues where it ended.  A case that kills its process, or computes for too long, is recorded
as crashed, and the next process continues after it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOO_LONG = (signal.SIGALRM, signal.SIGPROF)
AGAIN = 75
"""The exit code of a process that has judged its share and has more to judge."""
Row = dict[str, Any]
"""A verdict as stored: `key`, `verdict`, `reason`, and the fields of its kind of case."""


@dataclass(frozen=True, slots=True)
class Shards:
    """One run: the file of its verdicts, and the command of its processes."""

    module: str
    """Run as `python -m MODULE … --shard NUMBER`."""
    results: Path
    """One row of JSON per line."""
    limit_s: int = 120
    """The limit of CPU time per case; it may wait ten times as long, on a shared machine."""
    at_once: int | None = None
    """Cases that one process judges before another replaces it, because torch keeps memory for each."""

    def run(
        self, workers: int, arguments: Sequence[str], meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Run every shard to its end; one whose process dies is restarted after the case that caused it.

        `meanwhile` is called twice a second.
        """
        shards = {number: self._start(number, arguments) for number in range(workers)}
        while shards:
            time.sleep(0.5)
            meanwhile()
            for number, process in list(shards.items()):
                code = process.poll()
                if code is None:
                    continue
                del shards[number]
                if code:
                    if code != AGAIN:
                        self._record_crash(number, code)
                    shards[number] = self._start(number, arguments)

    def judge(self, number: int, cases: Iterable[tuple[str, Callable[[], Row]]]) -> None:
        """Judge the remaining cases in this process."""
        judged = {row["key"] for row in self.rows()}
        done = 0
        for key, verdict in cases:
            if key in judged:
                continue
            if done == self.at_once:
                self._marker(number).unlink(missing_ok=True)
                sys.exit(AGAIN)
            done += 1
            self._marker(number).write_text(key)
            _limit(self.limit_s)
            try:
                row = verdict()
            except Exception as error:  # noqa: BLE001 - whatever one case raises is its row, not the run's end
                row = crash(f"{type(error).__name__}: {error}")
            _limit(0)
            self._append(key, row)
        self._marker(number).unlink(missing_ok=True)

    def rows(self) -> Iterator[Row]:
        if self.results.exists():
            for line in self.results.read_text().splitlines():
                yield json.loads(line)

    def forget(self, keys: Callable[[Row], bool] = lambda row: True) -> None:
        """Remove the rows for which this is true."""
        remaining = [row for row in self.rows() if not keys(row)]
        self.results.parent.mkdir(exist_ok=True)
        self.results.write_text("".join(f"{json.dumps(row)}\n" for row in remaining))

    def _start(self, number: int, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", self.module, *arguments, "--shard", str(number)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)

    def _record_crash(self, number: int, code: int) -> None:
        if not self._marker(number).exists():
            sys.exit(f"shard {number} ended with exit code {code} before its first case")
        what = "took too long" if -code in TOO_LONG else f"ended its process with exit code {code}"
        self._append(self._marker(number).read_text(), crash(what))
        self._marker(number).unlink()

    def _append(self, key: str, row: Row) -> None:
        with self.results.open("a") as file:
            file.write(json.dumps({"key": key, **row}) + "\n")

    def _marker(self, number: int) -> Path:
        return self.results.with_suffix(f".{number}.started")


def crash(reason: str) -> Row:
    return {"verdict": "crashed", "reason": reason}


def _limit(seconds: int) -> None:
    """End the process after this CPU time or ten times as much wall time, whatever it is stuck in."""
    for kind in TOO_LONG:
        signal.signal(kind, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(10 * seconds)
