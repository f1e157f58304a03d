"""What it takes to list the targets of a huge log of torch's, and to open one: `aotlens/trace`.

Each figure is that of a process of its own.  The logs are made of one that the tests read: its records again
and again, each time with other compile ids.  The line of 10 GB exists only as it is read.
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Cell, Table, publish

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "tests" / "trace" / "logs"
FRAME = re.compile(rb'"frame_id": (\d+)')
MB, GB = 10**6, 10**9
LIST, LINE = "--list", "--line"
OPENED = 9
"""How many targets are opened for the median."""


@dataclass(frozen=True, slots=True)
class Case:
    """One log, made of a log of the tests or of one short compilation."""

    name: str
    source: str
    """The folder of the log; empty for the short compilation."""
    least_bytes: int = 0
    copies: int = 0


CASES = (
    Case("500 MB, net, Inductor", "net-inductor", 500 * MB),
    Case("500 MB, GPT, aot_eager", "gpt-aot_eager", 500 * MB),
    Case("a million targets", "", copies=10**6),
)
HEAD = "V1124 08:40:07.253000 7 torch/a.py:1] "
IDS = '"frame_id": 0, "frame_compile_id": 0, "attempt": 0'
STACK = '{"stack": [{"line": 2, "name": "f", "filename": 1}]}'
SHORT = f"""\
{HEAD}{{"dynamo_start": {STACK}, {IDS}}}
{HEAD}{{"dynamo_output_graph": {{"sizes": {{}}}}, {IDS}, "has_payload": "{"0" * 32}"}}
\tclass GraphModule(torch.nn.Module):
\t    def forward(self, L_x_: "f32[4][1]cpu"):
\t        l_x_ = L_x_
\t        # File: /home/ada/train/net.py:3 in f, code: y = x.sin()
\t        y: "f32[4][1]cpu" = l_x_.sin()
\t        return (y,)
"""
STRINGS = f'{HEAD}{{"str": ["/home/ada/train/net.py", 1]}}\n'


def write_log(case: Case, path: Path) -> None:
    """Write the log, with ids that follow each other."""
    if case.source:
        (packed,) = (LOGS / case.source).glob("*.gz")
        first, text = b"", gzip.decompress(packed.read_bytes())
    else:
        first, text = STRINGS.encode(), SHORT.encode()
    frames = 1 + max(int(number) for number in FRAME.findall(text))
    parts = FRAME.split(text)  # text and ids in turns
    ids = [int(number) for number in parts[1::2]]
    with open(path, "wb") as file:
        file.write(first)
        for copy in range(case.copies or -(-case.least_bytes // len(text))):
            shifted = [b'"frame_id": %d' % (number + copy * frames) for number in ids]
            file.write(
                b"".join(word for pair in zip(parts[::2], [*shifted, b""], strict=True) for word in pair)
            )


def measured(*arguments: str) -> tuple[float, float, str]:
    """Return the CPU seconds, the peak in MiB and the output of a Python process."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"{' '.join(arguments)} failed with status {status}")
        output.seek(0)
        text = output.read().decode()
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text


def row(case: Case, folder: Path) -> tuple[Cell, ...]:
    path = folder / "dedicated_log_torch_trace_a.log"
    write_log(case, path)
    answer: dict[str, Any] = json.loads(measured("-m", "benchmarks.logs", LIST, str(path))[2])
    inspect_s, inspect_mib, _ = measured("-m", "aotlens", "inspect", str(path))
    return (
        case.name,
        path.stat().st_size / MB,
        answer["targets"],
        answer["cpu_s"],
        answer["peak_mib"],
        inspect_s,
        inspect_mib,
        answer["open_ms"],
        answer["slowest_ms"],
    )


def list_targets(path: str) -> None:
    """Print what listing took, then what it takes to open a target with our solver, torch being loaded."""
    import resource
    import time

    from aotlens.cli.log_reports import LogReports
    from aotlens.trace.listing import FIRST_LOOK
    from aotlens.worker.protocol import TraceOptions

    log = LogReports(path)
    report = log.report(limits=replace(FIRST_LOOK, text_bytes=0))
    assert report.log is not None
    cpu_s, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    log.options = TraceOptions()
    log.read(report.log.listed[0])
    times = []
    for listed in report.log.listed[:: max(1, len(report.log.listed) // OPENED)]:
        start = time.process_time()
        log.read(listed)
        times.append(1000 * (time.process_time() - start))
    answer = {
        "targets": report.log.listed_count + len(report.targets),
        "cpu_s": cpu_s,
        "peak_mib": peak / 1024,
        "open_ms": median(times),
        "slowest_ms": max(times),
    }
    sys.stdout.write(json.dumps(answer))


def scan_line() -> None:
    """Read a stream whose second record is one line of 10 GB."""
    from aotlens.trace.logs import scan
    from aotlens.trace.logs.log_file import BLOCK_BYTES

    block = b"x" * BLOCK_BYTES
    head, tail = f'{HEAD}{{"huge": {{"a": "'.encode(), b'"}}\n'

    def blocks() -> Iterator[bytes]:
        yield SHORT.encode() + head
        for _ in range(10 * GB // len(block)):
            yield block
        yield tail + SHORT.encode()

    table = scan.RecordTable()
    scan.scan(blocks(), table, 0)
    assert len(table) == 5, len(table)


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == [LIST]:
        list_targets(arguments[1])
        return
    if arguments[:1] == [LINE]:
        scan_line()
        return
    columns = ("log", "MB", "targets", "list CPU s", "MiB", "inspect CPU s", "MiB", "open ms", "slowest ms")
    rows = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(case, Path(folder)))
    line_s, line_mib, _ = measured("-m", "benchmarks.logs", LINE)
    rows.append(("a line of 10 GB", 10_000, 2, line_s, line_mib, "", "", "", ""))
    note = (
        "List: until the targets are listed, one of them read, without torch; with the peak of memory."
        " Inspect: `aotlens inspect LOG`, with torch for our solver. Open: a listed target with our solver's"
        f" reasons, median and slowest of {OPENED}. CPU time of a process of its own."
    )
    publish("logs", [Table("Huge logs", columns, tuple(rows), note)])


if __name__ == "__main__":
    main()
