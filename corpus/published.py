"""The rows of the published page as data, so that a run elsewhere adds to them.

Invariant: a row belongs to one text of its program; a program that has changed has no published row.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from corpus.program import Program
from corpus.verdicts import Check, Judged, Ratio

__all__ = ["Row", "read_rows", "write_rows"]


@dataclass(frozen=True, slots=True)
class Row:
    """One program's checks, and the versions with which they were measured."""

    judged: Judged
    engine: str
    """Digest of the engine's source."""
    versions: dict[str, str]


def read_rows(path: Path, programs: Iterable[Program]) -> dict[str, Row]:
    """Return the published rows of unchanged programs; empty without a file.

    Raises ValueError or KeyError for another format, which is a mistake in the repository.
    """
    if not path.exists():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    return {
        program.name: _row(program, data[program.name])
        for program in programs
        if program.name in data and data[program.name]["program"] == program.digest
    }


def write_rows(path: Path, rows: Mapping[str, Row], order: Sequence[Program]) -> None:
    """Write one line per program, so that a diff shows what was measured again."""
    lines = [
        f"{json.dumps(program.name)}: {json.dumps(_data(rows[program.name]), ensure_ascii=False)}"
        for program in order
        if program.name in rows
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _data(row: Row) -> dict[str, Any]:
    checks = {
        field.name: asdict(value)
        if isinstance(value := getattr(row.judged, field.name), Check | Ratio)
        else value
        for field in fields(Judged)
        if field.name != "program"
    }
    return {"program": row.judged.program.digest, "engine": row.engine, "versions": row.versions, **checks}


def _row(program: Program, data: Mapping[str, Any]) -> Row:
    checks = {field.name: _check(data[field.name]) for field in fields(Judged) if field.name != "program"}
    return Row(Judged(program, **checks), data["engine"], data["versions"])


def _check(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return Check(**value) if "state" in value else Ratio(**value)
