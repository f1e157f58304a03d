"""The table of what does not pass, and why: `docs/operators.md`."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.shards import Row

TABLE = Path("docs/operators.md")
VERDICTS = ("equal", "unsupported", "not comparable", "no sample", "differs", "crashed")
WORST_FIRST = ("crashed", "differs", "unsupported", "not comparable", "equal", "no sample")
LONGEST = 200
"""Characters of a reason that the table shows."""


@dataclass(frozen=True, slots=True)
class CaseTotal:
    """One case over all of its slices that are judged."""

    key: str
    verdict: str
    """The worst of its slices."""
    reason: str
    equal: int
    """Samples."""
    unsupported: int
    """Samples."""
    reached: int | None
    """How many of its first samples are judged; None: all that it has."""

    @property
    def kind(self) -> str:
        return " ".join(self.key.split()[-2:])


def totals(rows: Iterable[Row]) -> list[CaseTotal]:
    slices: dict[str, list[Row]] = {}
    for row in rows:
        slices.setdefault(row["key"].rpartition(" ")[0], []).append(row)
    return [_total(key, found) for key, found in slices.items()]


def _total(key: str, rows: Sequence[Row]) -> CaseTotal:
    worst = min(rows, key=lambda row: WORST_FIRST.index(row["verdict"]))
    ended = any(row.get("ended") for row in rows)
    stops = [row["key"].rpartition("..")[2] for row in rows]
    return CaseTotal(
        key,
        worst["verdict"],
        worst["reason"],
        sum(row.get("equal", 0) for row in rows),
        sum(row.get("unsupported", 0) for row in rows),
        None if ended or "" in stops else max(map(int, stops)),
    )


def write_table(cases: Sequence[CaseTotal]) -> None:
    """Counts by database, type and sizes; then every case that is not equal, grouped by its reason."""
    parts = [
        "# Operators and modules of torch's databases",
        "",
        "`make test-ops` writes this page: every entry of `op_db` and `module_db`, compiled and in eager,",
        "values and gradients compared over its samples, then called again on other values.",
        "",
        *_reached(cases),
        "",
        "The first columns count cases: equal when all judged samples are, unsupported when one is.",
        "`judged in full` are those known to have no further sample; the last two columns count samples.",
        "",
        *_counts(cases),
        "",
        "## What is not equal",
        "",
        "| case | sizes and types | verdict | samples unsupported | why |",
        "|---|---|---|--:|---|",
        *_exceptions(cases),
        "",
    ]
    TABLE.write_text("\n".join(parts))


def _reached(cases: Sequence[CaseTotal]) -> list[str]:
    partly = Counter(case.reached for case in cases if case.reached is not None)
    lines = [
        f"Of {len(cases):,} cases, {len(cases) - partly.total():,} were judged over all of their samples."
    ]
    for reached, count in sorted(partly.items()):
        samples = "sample" if reached == 1 else f"{reached} samples"
        lines.append(f"{count:,} cases were judged over their first {samples} (a further run goes on there).")
    return lines


def _counts(cases: Sequence[CaseTotal]) -> list[str]:
    groups: dict[tuple[str, str], Counter[str]] = {}
    for case in cases:
        found = groups.setdefault((case.key.split()[0], case.kind), Counter())
        found.update(
            {
                case.verdict: 1,
                "judged in full": case.reached is None,
                "samples equal": case.equal,
                "samples unsupported": case.unsupported,
            }
        )
    columns = (*VERDICTS, "judged in full", "samples equal", "samples unsupported")
    lines = [f"| database | kind | {' | '.join(columns)} |", "|---|---|" + "--:|" * len(columns)]
    for (database, kind), found in sorted(groups.items()):
        counts = " | ".join(f"{found[column]:,}" for column in columns)
        lines.append(f"| {database} | {kind} | {counts} |")
    return lines


def _exceptions(cases: Sequence[CaseTotal]) -> list[str]:
    found: dict[tuple[str, str, str], list[CaseTotal]] = {}
    for case in cases:
        if case.verdict not in ("equal", "no sample"):
            name = " ".join(case.key.split()[1:-2])
            found.setdefault((case.verdict, name, _reason(case)), []).append(case)
    lines = []
    for (verdict, name, reason), group in sorted(found.items()):
        kinds = ", ".join(sorted(case.kind for case in group))
        unsupported = sum(case.unsupported for case in group)
        share = f"{unsupported} of {unsupported + sum(case.equal for case in group)}" if unsupported else ""
        lines.append(f"| `{name}` | {kinds} | {verdict} | {share} | {reason} |")
    return lines


def _reason(case: CaseTotal) -> str:
    """One line, without what differs from run to run: places, addresses."""
    text = re.sub(r"\S*/(\S+\.py)(:\d+)*:?", r"\1", " ".join(case.reason.split()))
    text = re.sub(r"0x[0-9a-f]+", "0x…", text).replace("|", "\\|")
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
