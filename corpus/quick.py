"""Check programs without timing them: eager and `aotlens run --verify --backend eager`.

Invariant: a quick row belongs to one text of its program and says nothing about times, memory or Inductor's
kernels; the published row of a program replaces it.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from corpus.measure import Bench, Limits, read_graphs
from corpus.program import Program
from corpus.records import Measured
from corpus.store import key_of
from corpus.verdicts import Check, quick_checks

__all__ = ["QuickRow", "check", "read_quick_rows", "write_quick_rows"]


@dataclass(frozen=True, slots=True)
class QuickRow:
    """The outcome of a program with our engine's graphs and eager's kernels."""

    program: str
    """Digest of the program's text."""
    engine: str
    versions: dict[str, str]
    output: Check
    """Its end and its stdout, compared with eager's."""
    graphs: Check
    verify: Check

    @property
    def failures(self) -> list[str]:
        checks = {"output": self.output, "graphs": self.graphs, "verify": self.verify}
        return [f"{name}: {check.text}" for name, check in checks.items() if check.state == "fail"]


def check(program: Program, limits: Limits) -> QuickRow:
    """Run the program twice, each time in its own process."""
    key = key_of(program)
    with tempfile.TemporaryDirectory(prefix="corpus-") as name:
        bench = Bench(program, Path(name), limits)
        runs = (bench.run("eager"), bench.run("quick"))
        graphs = read_graphs(bench.report)
    measured = Measured(program.name, key.program_digest, key.engine, key.versions, runs, graphs, {})
    output, listed, verdict = quick_checks(program, measured)
    return QuickRow(key.program_digest, key.engine, key.versions, output, listed, verdict)


def read_quick_rows(path: Path, programs: Iterable[Program]) -> dict[str, QuickRow]:
    """Return the rows of unchanged programs; empty without a file."""
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        program.name: _row(data[program.name])
        for program in programs
        if program.name in data and data[program.name]["program"] == program.digest
    }


def write_quick_rows(path: Path, rows: Mapping[str, QuickRow], order: Sequence[Program]) -> None:
    """Write one line per program, so that a diff shows what was checked again."""
    lines = [
        f"{json.dumps(program.name)}: {json.dumps(asdict(rows[program.name]), ensure_ascii=False)}"
        for program in order
        if program.name in rows
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _row(data: Mapping[str, object]) -> QuickRow:
    checks = {name: Check(**data[name]) for name in ("output", "graphs", "verify")}  # type: ignore[arg-type]
    return QuickRow(**{**data, **checks})  # type: ignore[arg-type]
