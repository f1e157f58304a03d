"""Write into docs/why.md how many recompilations of scripts with changing shapes the forecast predicts.

    python scripts/why/forecast_table.py [NAME…]

Each script of tests/dynamo/changing_shapes runs to its end, and every recompilation is noted: function, kind
and name of the value that changed.  Then it is stopped after its first calls: a recompilation counts as
predicted if the forecast names the same guard.  Last, its own values are passed to `--vary` (its `# vary:`).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotlens.forecast.fork import in_fork
from aotlens.model.dynamo import Dynamo
from aotlens.session.dynamo.log import DynamoLog
from aotlens.session.script.source import load_script, new_module, run_script
from aotlens.session.why.forecast import forecast_script
from scripts.docs.marked_tables import write_table

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "dynamo" / "changing_shapes"
PAGE = ROOT / "docs" / "why.md"
BEGIN, END = "<!-- written by scripts/why/forecast_table.py -->", "<!-- end of the table -->"
SECONDS = 300.0

Guard = tuple[str, str, str]
"""Function, kind and name of a recompilation's cause."""


@dataclass(frozen=True, slots=True)
class Row:
    """One script."""

    name: str
    happened: tuple[Guard, ...]
    """Every recompilation of the whole run, in order."""
    predicted: frozenset[Guard]
    calls: int
    """Of the run with `--vary`, and its compilations."""
    compilations: int
    remedy: str

    @property
    def missed(self) -> tuple[Guard, ...]:
        return tuple(guard for guard in self.happened if guard not in self.predicted)


def main(names: Sequence[str]) -> int:
    """Measure, print, and write the table unless only some scripts are selected."""
    paths = [path for path in sorted(SCRIPTS.glob("*.py")) if not names or path.stem in names]
    rows = []
    for path in paths:
        row = measured(path)
        rows.append(row)
        print(
            f"{row.name}: {len(row.happened) - len(row.missed)} of {len(row.happened)}",
            row.missed,
            flush=True,
        )
    text = table(rows)
    print(text)
    if not names:
        write_table(PAGE, BEGIN, END, text)
    return 0


def measured(path: Path) -> Row:
    """Return a script's whole run, its forecast, and the forecast of `--vary` with its own values."""
    happened = in_fork(lambda: run_whole(path), SECONDS)
    end, report = in_fork(lambda: forecast_script(str(path), (), (), SECONDS), 2 * SECONDS)
    assert report.dynamo is not None, f"{path.name}: {end.failure}"
    axes = [axis for entry in report.dynamo.forecasts for axis in entry.axes]
    predicted = frozenset(
        (function, cause.kind, cause.name)
        for axis in axes
        for call in axis.calls
        for cause, function in zip(call.causes, call.functions, strict=True)
    )
    variations = [
        line.partition(": ")[2] for line in path.read_text().splitlines() if line.startswith("# vary: ")
    ]
    end, report = in_fork(lambda: forecast_script(str(path), (), variations, SECONDS), SECONDS)
    varied = report.dynamo
    assert varied is not None, f"{path.name}: --vary {variations}: {end.failure}"
    axis = varied.forecasts[0].axes[0]
    remedy = axis.remedies[-1] if axis.remedies else None
    change = f"`{remedy.text}`: {remedy.compilations}" if remedy is not None else ""
    return Row(path.stem, happened, predicted, 1 + len(axis.calls), axis.compilations, change)


def run_whole(path: Path) -> tuple[Guard, ...]:
    """Return every recompilation of the script, with its own backend."""
    log = DynamoLog()
    script = load_script(str(path))
    with log.listening():
        run_script(script, new_module(script, "__main__"))
    return tuple(guards(log.dynamo()))


def guards(dynamo: Dynamo | None) -> list[Guard]:
    return [
        (function.qualname, entry.cause.kind, entry.cause.name)
        for function in (dynamo.functions if dynamo is not None else ())
        for entry in function.compilations
        if entry.cause is not None
    ]


def table(rows: Sequence[Row]) -> str:
    happened = sum(len(row.happened) for row in rows)
    missed = sum(len(row.missed) for row in rows)
    share = 100 * (happened - missed) / max(1, happened)
    predicted = f"{happened - missed} of {happened} recompilations ({share:.0f} %)"
    head = (
        "script",
        "recompilations",
        "predicted",
        "missed",
        "`--vary`: calls, compilations",
        "smallest change",
    )
    lines = [
        f"{predicted} of {len(rows)} scripts are predicted.",
        "",
        f"| {' | '.join(head)} |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        missing = ", ".join(dict.fromkeys(f"`{name}` ({kind})" for _, kind, name in row.missed))
        lines.append(
            f"| {row.name} | {len(row.happened)} | {len(row.happened) - len(row.missed)} | {missing} |"
            f" {row.calls}, {row.compilations} | {row.remedy} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
