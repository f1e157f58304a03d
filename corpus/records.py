"""The measurements of one program, as plain data for a JSON file.

Invariant: a record holds measurements only; every judgement is made from it later, so that a better check
needs no new run.
"""

import json
import types
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from corpus.process import Line, Ran

__all__ = [
    "WAYS",
    "Graphs",
    "Line",
    "Measured",
    "NotCompiled",
    "Ran",
    "Run",
    "TensorError",
    "Values",
    "dumps",
    "loads",
]

WAYS = (
    *("eager", "inductor", "aotlens", "inductor-cold", "aotlens-cold"),
    *("inductor-warm", "aotlens-warm", "verify"),
)
"""In the order in which they run: compared runs are adjacent.  `-cold` repeats the first two."""


@dataclass(frozen=True, slots=True)
class NotCompiled:
    """One entry of the report's list of code that ran in eager."""

    name: str
    code: str
    cause: str
    reason: str
    location: str

    @property
    def by_engine(self) -> bool:
        """Return True if Dynamo captured a graph that the engine did not compile; otherwise there was no
        graph.
        """
        return self.cause in ("unsupported", "internal", "backend")


@dataclass(frozen=True, slots=True)
class Graphs:
    """The counts of the engine's report of one run."""

    compiled: int
    not_compiled: tuple[NotCompiled, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One process of a program in one way."""

    way: str
    ran: Ran
    peak_bytes: int | None = None
    """Largest sum of tensors that are allocated during two late steps; None if it was not observed."""


@dataclass(frozen=True, slots=True)
class TensorError:
    """One tensor compared with eager's."""

    name: str
    dtype: str
    error: float
    """max |a - b| / max |b|; infinite for another shape."""


@dataclass(frozen=True, slots=True)
class Values:
    """Parameters, gradients and buffers at exit, compared with eager's."""

    tensors: tuple[TensorError, ...] = ()
    """Tensors of both runs; empty if none was observed."""
    missing: tuple[str, ...] = ()
    """Names of only one of the two runs."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All runs of one program."""

    program: str
    program_digest: str
    engine: str
    """Digest of the engine's source."""
    versions: dict[str, str]
    runs: tuple[Run, ...]
    graphs: Graphs | None
    """None if the run ended without a report."""
    values: dict[str, Values]
    """By compiler: `inductor` and `aotlens`."""

    def runs_of(self, way: str) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.way == way)

    def first(self, way: str) -> Run | None:
        return next(iter(self.runs_of(way)), None)


def dumps(measured: Measured) -> str:
    return json.dumps(asdict(measured), indent=1)


def loads(text: str) -> Measured:
    """Parse a record.  Raises ValueError, KeyError or TypeError for text of another form."""
    return _decode(Measured, json.loads(text))


def _decode(form: Any, data: Any) -> Any:
    """Return the record of that type from plain data, by its annotations."""
    if is_dataclass(form):
        hints = get_type_hints(form)
        known = {entry.name for entry in fields(form)}
        return form(**{name: _decode(hints[name], value) for name, value in data.items() if name in known})  # type: ignore[operator]
    origin, arguments = get_origin(form), get_args(form)
    if origin is tuple:
        return tuple(_decode(arguments[0], item) for item in data)
    if origin is dict:
        return {key: _decode(arguments[1], value) for key, value in data.items()}
    if origin is types.UnionType:
        return None if data is None else _decode(arguments[0], data)
    return data
