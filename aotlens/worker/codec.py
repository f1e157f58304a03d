"""Convert protocol records to JSON lines and back.

Invariant: a line names its protocol version and its record's type; unknown fields are ignored, so that a
newer peer of the same version may add some.
"""

import json
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from aotlens.model.failure import Failure
from aotlens.model.parsing import parsed
from aotlens.worker.protocol import PROTOCOL, Answer, Cancel, Hello, Progress, TraceOptions, TraceRequest

__all__ = ["Message", "Outcome", "ProtocolError", "decode", "encode"]


class ProtocolError(ValueError):
    """A line that is not a message of this protocol version."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a child sends to the server at its end; the server makes the `Answer` from it."""

    report: dict[str, object] | None
    failure: Failure | None
    files: tuple[str, ...] = ()
    """Absolute paths that the report depends on: the user's sources, and the files that the script read."""
    outside: str = ""
    """Other dependencies, which are not files."""
    stopped: bool = False
    """Whether the script was stopped early, because its targets only repeated."""


Message = TraceRequest | Cancel | Hello | Progress | Answer | Outcome

_NAMES: dict[type, str] = {
    TraceRequest: "trace",
    Cancel: "cancel",
    Hello: "hello",
    Progress: "progress",
    Answer: "answer",
    Outcome: "outcome",
}
_TYPES = {name: record for record, name in _NAMES.items()}
_NESTED: dict[str, type] = {"options": TraceOptions, "failure": Failure}
_TUPLES = frozenset({"argv", "files", "what_if", "gpu_texts"})


def encode(message: Message) -> bytes:
    """Return one line, newline included."""
    head = {"protocol": PROTOCOL, "type": _NAMES[type(message)]}
    return json.dumps(head | _as_dict(message), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def decode(line: bytes) -> Message:
    """Parse a line.  Raises ProtocolError if it is not JSON, of another version, or of an unknown type."""
    try:
        data = parsed(line)
    except ValueError as error:
        raise ProtocolError(f"not a JSON line: {line[:80]!r} ({error})") from error
    if not isinstance(data, dict) or data.get("protocol") != PROTOCOL:
        raise ProtocolError(f"expected a message of protocol {PROTOCOL}, found {line[:80]!r}")
    record = _TYPES.get(str(data.get("type")))
    if record is None:
        raise ProtocolError(f"unknown message type {data.get('type')!r}; known: {', '.join(_TYPES)}")
    try:
        message: Message = _build(record, data)
    except TypeError as error:
        raise ProtocolError(f"incomplete `{data['type']}` message: {error}") from error
    return message


def _as_dict(record: object) -> dict[str, object]:
    """Return a shallow dict, because a report is megabytes of plain data already."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}  # type: ignore[arg-type]
    return {name: _as_dict(value) if is_dataclass(value) else value for name, value in values.items()}


def _build(record: type, data: dict[str, Any]) -> Any:
    known = {field.name for field in fields(record)}
    return record(**{name: _value(name, value) for name, value in data.items() if name in known})


def _value(name: str, value: Any) -> Any:
    if name in _NESTED and isinstance(value, dict):
        return _build(_NESTED[name], value)
    if name == "texts":
        return tuple((file, text) for file, text in value)
    return tuple(value) if name in _TUPLES else value
