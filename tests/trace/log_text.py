"""Write records as torch's logger writes them."""

import hashlib
import json

PREFIX = "V1124 08:40:07.253000 {pid} torch/_dynamo/output_graph.py:2841] "


ARTIFACT = object()
"""The value of an artifact, whose kind is its name."""


def record(kind: str, value: object, payload: str | None = None, *, pid: int = 7, **context: int) -> str:
    """Return one record; `context` holds `rank`, `frame_id`, `frame_compile_id`, `attempt`."""
    is_artifact = value is ARTIFACT
    header: dict[str, object] = (
        {"artifact": {"name": kind, "encoding": "string"}} if is_artifact else {kind: value}
    )
    header.update(context)
    lines = ""
    if payload is not None:
        header["has_payload"] = hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()
        lines = "".join(f"\t{line}\n" for line in payload.split("\n"))
    return f"{PREFIX.format(pid=pid)}{json.dumps(header)}\n{lines}"


def compiled(frame: int = 0, number: int = 0, attempt: int = 0) -> dict[str, int]:
    """The context of a record about one compilation."""
    return {"frame_id": frame, "frame_compile_id": number, "attempt": attempt}
