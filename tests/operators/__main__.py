"""`python -m tests.operators`: every case over several processes, and the table in `docs/operators.md`.

Each case is judged in slices of its samples: the first of all cases, then further ones of all, so that a run
that is stopped has judged every case.  A stopped run goes on where it ended: what is judged stands in
`build/operators.jsonl`.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.operators.table import totals, write_table
from tests.shards import Row, Shards

if TYPE_CHECKING:  # only a shard needs torch's databases, 10 s to import
    from tests.operators.cases import Case

SHARDS = Shards("tests.operators", Path("build/operators.jsonl"))
BOUNDS = (0, 1, 4, 16, 64, 256, 512, 768, 1024, 1280, None)
"""Between two of them is one slice of the samples: what a process judges before its time is up."""


def main() -> None:
    options = _options()
    if options.shard is not None:
        SHARDS.judge(options.shard, _slices(options))
        return
    SHARDS.forget(lambda row: options.fresh and options.only in row["key"])
    if not options.table:
        arguments = ["--workers", str(options.workers), "--only", options.only]
        arguments += [] if options.samples is None else ["--samples", str(options.samples)]
        SHARDS.run(options.workers, arguments)
    cases = totals(SHARDS.rows())
    if not options.only:
        write_table(cases)
    sys.exit(any(case.verdict in ("differs", "crashed") for case in cases))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="torch's operator and module databases against eager")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--samples", type=int, default=None, help="samples of each case; all when left out")
    parser.add_argument("--only", default="", help="cases whose key contains this; the table stays as it is")
    parser.add_argument("--fresh", action="store_true", help="forget what is judged already (of --only)")
    parser.add_argument("--table", action="store_true", help="judge nothing: the table of what is judged")
    parser.add_argument("--shard", type=int, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def _slices(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Slice by slice, every `workers`-th case whose samples have not ended."""
    from tests.operators.cases import all_cases

    mine = [case for case in list(all_cases())[options.shard :: options.workers] if options.only in case.key]
    ended = {row["case"] for row in SHARDS.rows() if row.get("ended")}
    for first, stop in _bounds(options.samples):
        for case in mine:
            if case.key not in ended:
                yield f"{case.key} {first}..{stop or ''}", partial(_judged, case, (first, stop), ended)


def _bounds(limit: int | None) -> Iterator[tuple[int, int | None]]:
    """The slices, up to the sample `limit`."""
    for first, stop in itertools.pairwise(BOUNDS):
        assert first is not None  # only the last bound is open
        if limit is None:
            yield first, stop
        elif first < limit:
            yield first, min(stop or limit, limit)


def _judged(case: "Case", bounds: tuple[int, int | None], ended: set[str]) -> Row:
    from tests.operators.judging import judge_case

    judged = judge_case(case, *bounds)
    if judged.ended:
        ended.add(case.key)
    return {"case": case.key, **asdict(judged)}


if __name__ == "__main__":
    main()
