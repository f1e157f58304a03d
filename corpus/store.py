"""Results on disk, one JSON file per program, so that a stopped run can continue.

Invariant: a result is reused only for the same program, engine and library versions; a file that cannot be
read counts as missing.
"""

import hashlib
import importlib.metadata
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from corpus.program import Program
from corpus.records import Measured, dumps, loads

__all__ = ["ROOT", "Key", "Store", "engine_digest", "key_of"]

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of a result."""

    program_digest: str
    engine: str
    versions: dict[str, str]


@cache
def engine_digest(root: Path = ROOT) -> str:
    """Return one name for the engine's current source."""
    hashed = hashlib.sha256()
    for path in sorted((root / "aotlens").rglob("*.py")):
        hashed.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()[:16]


def key_of(program: Program) -> Key:
    """Return the key.  Raises PackageNotFoundError if a package that the program needs is not installed."""
    versions = {name: importlib.metadata.version(name) for name in ("torch", *program.needs)}
    return Key(program.digest, engine_digest(), versions)


class Store:
    """Results by program name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, program: Program) -> Measured | None:
        """Return the latest result of the program, whatever it was measured with."""
        try:
            return loads(self._path(program).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def current(self, program: Program, key: Key) -> Measured | None:
        """Return the result that needs no new run."""
        measured = self.get(program)
        if measured is None or measured.program_digest != key.program_digest:
            return None
        return measured if (measured.engine, measured.versions) == (key.engine, key.versions) else None

    def put(self, program: Program, measured: Measured) -> None:
        path = self._path(program)
        path.parent.mkdir(parents=True, exist_ok=True)
        writing = path.with_suffix(f".{os.getpid()}.tmp")
        writing.write_text(dumps(measured), encoding="utf-8")
        writing.replace(path)

    def _path(self, program: Program) -> Path:
        return self.folder / f"{program.name}.json"
