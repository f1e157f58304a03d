"""The table of what does not pass, and why: `docs/operators.md`."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

TABLE = Path("docs/operators.md")
VERDICTS = ("equal", "refused", "not comparable", "no sample", "differs", "crashed")
SAMPLES = "samples"
LONGEST = 200
"""Characters of a reason that the table shows."""


@dataclass(frozen=True, slots=True)
class Row:
    """One case, judged."""

    key: str
    verdict: str
    samples: int
    reason: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def write_table(rows: Iterable[Row], samples: int | None) -> None:
    """Counts by database, type and sizes; then every case that is not equal, grouped by its reason."""
    known = list(rows)
    which = "all of its samples" if samples is None else f"at least the first {samples} of its samples"
    parts = [
        "# Operators and modules of torch's databases",
        "",
        "`make test-ops` writes this page: every entry of `op_db` and `module_db`, compiled and in eager,",
        f"values and gradients compared over {which}, then called again on other values.",
        "The column `samples` counts those that were compared; the other columns count cases.",
        "",
        *_counts(known),
        "",
        "## What is not equal",
        "",
        "| case | sizes and types | verdict | why |",
        "|---|---|---|---|",
        *_exceptions(known),
        "",
    ]
    TABLE.write_text("\n".join(parts))


def _counts(rows: list[Row]) -> list[str]:
    groups: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        found = groups.setdefault((row.key.split()[0], _kind(row)), Counter())
        found.update({row.verdict: 1, SAMPLES: row.samples})
    columns = (*VERDICTS, SAMPLES)
    lines = [f"| database | kind | {' | '.join(columns)} |", "|---|---|" + "--:|" * len(columns)]
    for (database, kind), found in sorted(groups.items()):
        counts = " | ".join(str(found[column]) for column in columns)
        lines.append(f"| {database} | {kind} | {counts} |")
    return lines


def _kind(row: Row) -> str:
    return " ".join(row.key.split()[-2:])


def _exceptions(rows: list[Row]) -> list[str]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.verdict not in ("equal", "no sample"):
            name = " ".join(row.key.split()[1:-2])
            found.setdefault((row.verdict, name, _reason(row)), []).append(_kind(row))
    return [
        f"| `{name}` | {', '.join(sorted(kinds))} | {verdict} | {reason} |"
        for (verdict, name, reason), kinds in sorted(found.items())
    ]


def _reason(row: Row) -> str:
    """One line, without what differs from run to run: places, addresses."""
    text = re.sub(r"\S*/(\S+\.py)(:\d+)*:?", r"\1", " ".join(row.reason.split()))
    text = re.sub(r"0x[0-9a-f]+", "0x…", text).replace("|", "\\|")
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
