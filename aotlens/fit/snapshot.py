"""Read who holds GPU memory from a file of `torch.cuda.memory._dump_snapshot`.  Stdlib only.

Invariant: nothing in the file is executed.  A snapshot consists of plain dicts, lists, strings and numbers; a
pickle that needs anything else, which is how pickles run code, is rejected with the name of what it needs.
"""

import os
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aotlens.errors import UserError
from aotlens.model.memory_snapshot import FailedAllocation, Holder, HolderPhase, MemorySnapshot
from aotlens.model.spans import is_library_path
from aotlens.trace.logs.safe_text import safe_text
from aotlens.view.quantities import human_bytes

__all__ = ["is_snapshot", "read_snapshot"]

PICKLE_START = b"\x80"
MOST_BYTES = 4 << 30
"""Larger files are rejected, because their objects would take many times this size."""

_ACTIVE = ("active_allocated", "active_awaiting_free", "active_pending_free")
_GENERATED = ("torchinductor", "<eval_with_key>", "fx_generated_")


class _UnsafeError(Exception):
    """The file needs more than plain data."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise _UnsafeError(f"it asks for `{module}.{name}`, which a memory snapshot does not hold")

    def persistent_load(self, pid: Any) -> Any:
        raise _UnsafeError("it asks for an object outside of the file")


_DAMAGED = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    ImportError,
    OverflowError,
    RecursionError,
    TypeError,
)
"""Errors of `pickle` for bytes that are no pickle."""


def is_snapshot(path: str) -> bool:
    """Return True if the file may be a snapshot, by its first bytes and first key; nothing is unpickled."""
    try:
        with open(path, "rb") as file:
            start = file.read(256)
    except OSError:
        return False
    return start.startswith(PICKLE_START) and (b"segments" in start or b"device_traces" in start)


def read_snapshot(path: str) -> tuple[MemorySnapshot, ...]:
    """Return the devices of a snapshot that hold memory or failed.

    Raises:
        UserError: the file cannot be read, is too large, is damaged, or is no snapshot.
    """
    data = _loaded(path)
    if not isinstance(data, Mapping) or not isinstance(data.get("segments"), Sequence):
        raise UserError(f"{path} is not a memory snapshot: it has no list of segments")
    segments, traces = data["segments"], data.get("device_traces") or []
    try:
        devices = sorted({_number(segment, "device") for segment in segments} | set(range(len(traces))))
        snapshots = [_device(device, segments, traces[device : device + 1]) for device in devices]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a readable memory snapshot: {error!r} in its records") from error
    return tuple(
        snapshot for snapshot in snapshots if snapshot.reserved_bytes or snapshot.failure is not None
    )


def _loaded(path: str) -> Any:
    try:
        size_bytes = os.path.getsize(path)
        if size_bytes > MOST_BYTES:
            size, most = human_bytes(size_bytes), human_bytes(MOST_BYTES)
            raise UserError(f"{path} has {size}; snapshots of up to {most} can be read")
        with open(path, "rb") as file:
            return _PlainUnpickler(file).load()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    except _UnsafeError as error:
        raise UserError(f"{path} is rejected, and nothing in it was run: {error}") from error
    except MemoryError as error:
        raise UserError(
            f"{path} asks for more memory than reading may use; it is too large, or damaged"
        ) from error
    except _DAMAGED as error:
        raise UserError(f"{path} is damaged or cut short ({type(error).__name__})") from error


def _device(device: int, segments: Iterable[Any], traces: Sequence[Any]) -> MemorySnapshot:
    own = [segment for segment in segments if _number(segment, "device") == device]
    blocks = [block for segment in own for block in segment["blocks"]]
    active = [block for block in blocks if block["state"] in _ACTIVE]
    free = (_number(block, "size") for block in blocks if block["state"] not in _ACTIVE)
    return MemorySnapshot(
        device=device,
        reserved_bytes=sum(_number(segment, "total_size") for segment in own),
        allocated_bytes=sum(_number(block, "size") for block in active),
        largest_free_bytes=max(free, default=0),
        holders=tuple(_holders(active)),
        failure=_failure(traces[0] if traces else ()),
    )


def _holders(blocks: Iterable[Any]) -> Iterator[Holder]:
    sizes: Counter[tuple[HolderPhase, str, int, str]] = Counter()
    counts: Counter[tuple[HolderPhase, str, int, str]] = Counter()
    for block in blocks:
        frames = _frames(block)
        key = (_phase(frames), *_users(frames))
        sizes[key] += _number(block, "size")
        counts[key] += 1
    for key, size_bytes in sizes.most_common():
        yield Holder(*key, size_bytes, counts[key])


def _failure(trace: Iterable[Any]) -> FailedAllocation | None:
    failed = [entry for entry in trace if entry.get("action") == "oom"]
    if not failed:
        return None
    last = failed[-1]
    free = last.get("device_free")
    frames, free_bytes = _frames(last), int(free) if free is not None else None
    return FailedAllocation(_number(last, "size"), free_bytes, *_users(frames), _phase(frames))


def _frames(record: Any) -> list[tuple[str, int, str]]:
    """Return file, line and function, innermost first, without frames of C++."""
    frames = record.get("frames") or []
    if not frames:  # files of torch before 2.1 have them in the block's history
        frames = next((entry.get("frames") or [] for entry in record.get("history") or []), [])
    named = (
        (safe_text(str(frame["filename"])), int(frame["line"]), safe_text(str(frame["name"])))
        for frame in frames
    )
    return [frame for frame in named if frame[0].endswith(".py") or frame[0].startswith("<")]


def _users(frames: list[tuple[str, int, str]]) -> tuple[str, int, str]:
    """Return the innermost frame outside of installed packages and generated code."""
    for file, line, function in frames:
        is_generated = file.startswith("<") or any(part in file for part in _GENERATED)
        if not is_generated and not is_library_path(file):
            return file, line, function
    return "", 0, ""


def _phase(frames: list[tuple[str, int, str]]) -> HolderPhase:
    """Return the phase, from the outermost part of torch in the stack."""
    if not frames:
        return "not recorded"
    if any("/torch/optim/" in file and function == "step" for file, _, function in frames):
        return "optimizer"
    if any(
        function in ("_engine_run_backward", "backward") and "/torch/" in file for file, _, function in frames
    ):
        return "backward"
    if any(part in file for file, _, _ in frames for part in _GENERATED):
        return "compiled code"
    if any(file.endswith("nn/modules/module.py") and function == "_apply" for file, _, function in frames):
        return "parameters"
    return "forward"


def _number(record: Any, key: str) -> int:
    value = record[key]
    if not isinstance(value, int):
        raise TypeError(f"`{key}` is {type(value).__name__}, not a number")
    return value
