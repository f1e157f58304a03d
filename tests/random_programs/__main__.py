"""`python -m tests.random_programs --count 10000 --seed 0`: random programs beside eager.

A stopped run goes on where it ended.  A program that is wrong is made smaller and kept as a file under
`build/random_programs`; given such files, the command judges those again.
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.random_programs.campaign import CHUNK, Chunk
from tests.random_programs.judging import judge
from tests.shards import Row, Shards

FOLDER = Path("build/random_programs")


def main() -> int:
    options = _options()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.files:
        return _replay(options.files)
    shards = Shards("tests.random_programs", FOLDER / f"{options.seed}.jsonl", limit_s=600, at_once=20)
    chunks = [Chunk(options.seed, number, FOLDER) for number in range(-(-options.count // CHUNK))]
    keyed = [(f"chunk {chunk.number}", chunk) for chunk in chunks]
    if options.shard is not None:
        mine = keyed[options.shard :: options.workers]
        shards.judge(options.shard, ((key, chunk.row) for key, chunk in mine))
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    shards.forget(lambda row: options.fresh or row["verdict"] == "crashed")
    wanted = {key for key, _ in keyed}
    rows = lambda: [row for row in shards.rows() if row["key"] in wanted]
    arguments = ["--workers", str(options.workers), "--count", str(options.count)]
    with _progress() as progress:
        task = progress.add_task("", total=options.count, wrong=0)
        tick = partial(_tick, progress, task, rows)
        tick()
        shards.run(options.workers, [*arguments, "--seed", str(options.seed)], tick)
        tick()
    return _summary(rows())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.random_programs", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="kept programs to judge again")
    parser.add_argument("--count", type=int, default=1000, help="how many programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="forget what is judged already")
    parser.add_argument("--shard", type=int, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def _replay(files: list[str]) -> int:
    wrong = 0
    for file in files:
        judgement = judge(Path(file).read_text(), file)
        wrong += judgement.wrong
        _tell(f"{judgement.word}: {file}")
        _tell("".join(f"  {line}\n" for line in judgement.told.splitlines()).rstrip())
    return int(wrong > 0)


def _progress() -> Progress:
    """On stderr; nothing but the summary where that is no terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("random programs"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[wrong]} wrong"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal, refresh_per_second=2)


def _tick(progress: Progress, task: object, rows: Callable[[], list[Row]]) -> None:
    done = rows()
    wrong = sum(len(row.get("kept", ())) for row in done)
    progress.update(task, completed=CHUNK * len(done), wrong=wrong)  # type: ignore[arg-type]


def _summary(rows: list[Row]) -> int:
    """The counts, the commonest refusals, and a line for each file that is kept."""
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    for row in rows:
        counts.update(row.get("counts", {"crashed": CHUNK}))
        refusals.update(row.get("refusals", {}))
    for word, count in counts.most_common():
        _tell(f"{count:6,} {word}")
    for text, count in refusals.most_common():
        _tell(f"{'':6} {count:6,} {text}")
    for row in rows:
        for path in row.get("kept", ()):
            _tell(f"wrong: {path}")
        if row["verdict"] == "crashed":
            _tell(f"crashed: {row['key']}: {row['reason']}")
    return int(any(row["verdict"] != "fine" for row in rows))


def _tell(line: str) -> None:
    if line:
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
